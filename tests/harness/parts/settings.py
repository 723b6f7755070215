from distrun.spec import resources
from distrun.spec.host_spec import HostSpec, SlurmNode, SshSpec, host_set
from distrun.spec.placeholders import fill, names
from distrun.spec.reference import json_schema, reference
from distrun.spec.resources import ROOTS, bundled_jobs, examples, templates
from distrun.spec.restart_spec import RestartSpec
from distrun.spec.schedulers import SlurmSpec
