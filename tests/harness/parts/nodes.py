from distrun.spec.addresses import is_loopback
from distrun.spec.nodes import Entry, Mapping, Node, Scalar, Sequence
from distrun.spec.schema import keys_of
from distrun.spec.tensorflow_versions import KERAS_2, KERAS_2_WITHOUT_TENSORFLOW
from distrun.spec.yamlnodes import MAX_BYTES, parse
from distrun.spec.yamltext import yaml_text
