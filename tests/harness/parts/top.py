from distrun import api, errors
from distrun.codec import field_names, from_json, range_of, to_json
from distrun.errors import HostError, InternalError, InvalidSpecError, UsageError
from distrun.frozen import replace
from distrun.strategies import Role, STRATEGIES, Success, Workers
from distrun.tables import read_rows
