from distrun.spec import host_spec, loader, machine, model, program, resources, units
from distrun.spec.loader import load, load_mapping, reload
from distrun.spec.model import EnvStyle, Memory, Placement, ProgramKind, ProgramSpec, Ready
from distrun.spec.model import RoleSpec, SPEC, Spec, Sync, TensorBoardSpec, Timeouts
from distrun.spec.problems import Mark, Problem, Problems, SpecProblemsError
from distrun.spec.target import Target, find_target
from distrun.spec.value_warnings import check_values
