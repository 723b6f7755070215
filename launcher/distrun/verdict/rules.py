"""The rules: what a task prints when it fails, and what that means. Tables, tried in order.

A rule is matched against the excerpts of a log that may say why the task ended: the exception and
its causes, the errors in TensorFlow's log, the last lines that the program printed. The first rule
of :data:`RULES` that matches is taken. A rule has a code; its words and the advice are in
:mod:`distrun.words.causes`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from distrun.agent.protocol.causes import Code
from distrun.frozen import Frozen
from distrun.verdict.model import Kind
from distrun.verdict.old_names import KERAS_2, OLD_MODULES, SUCCESSORS, TENSORFLOW_1, missing_name


class Excerpt(Frozen, kw_only=True):
    """Lines of a log that belong together, with their indices: an exception's message, or others.

    Attributes:
        types: the exception's type with its module, and that of the exception that it wraps.
        frames: the lines of its traceback that name files.
        before: lines above these that a pattern may require.
        source: the line of code in its deepest frame; empty: not known.
        is_tensorflows: whether TensorFlow wrote it.
        is_printed: whether these are just the last lines that the program printed. Only lines that
            match one of a rule's `line_patterns` count among them.
    """

    lines: tuple[tuple[int, str], ...]
    types: tuple[str, ...] = ()
    frames: tuple[tuple[int, str], ...] = ()
    before: tuple[str, ...] = ()
    source: str = ""
    is_tensorflows: bool = False
    is_printed: bool = False


class Rule(Frozen):
    """Several texts with the same meaning; one of them is enough.

    Plain texts are preferred to patterns: they are searched for in many logs, in little time.
    """

    kind: Kind
    code: Code
    types: tuple[str, ...] = ()
    """Types of exceptions, with as much of their module as distinguishes them."""
    any_of: tuple[str, ...] = ()
    """Texts in an exception's message, or in TensorFlow's log."""
    tensorflows: tuple[str, ...] = ()
    """Texts that count only if TensorFlow writes them: elsewhere they may be chance."""
    frames: tuple[str, ...] = ()
    """Parts of file names, one of which must be in the traceback; enough alone without `any_of`."""
    line_patterns: tuple[str, ...] = ()
    """Patterns of whole lines that only certain programs print before they exit."""
    exit_codes: tuple[int, ...] = ()
    """The exit codes for which `line_patterns` count; empty for any."""
    all_of: tuple[str, ...] = ()
    """Texts that must all be there as well."""
    patterns: tuple[str, ...] = ()
    """Patterns searched for in the line that says what is wrong, or in the last line printed.

    They must take linear time: between two texts, the number of characters is limited."""
    source: str = ""
    """A pattern of the line of code that raised the exception; that line is empty if unknown."""
    missing: frozenset[str] = frozenset()
    """Names that a module lacks, or names of modules that lack everything in them."""
    is_echo: bool = False
    """Whether it follows from another task's end, if another task ended."""

    def match(self, excerpt: Excerpt, exit_code: int | None) -> tuple[int, str] | None:
        """Return the index of the line that matches, and the text in it that does."""
        if excerpt.is_printed:
            counts = not self.exit_codes or exit_code in self.exit_codes
            return self._match_printed(excerpt) if counts else None
        if not all(any(each in line for _, line in excerpt.lines) for each in self.all_of):
            return None
        if self.source and not re.search(self.source, excerpt.source):
            return None
        if self.frames:
            if _find_first(excerpt.frames, self.frames) is None:
                return None
            if not self.any_of:
                return excerpt.lines[0]
        return self._match_type(excerpt) or self._match_text(excerpt) or self._match_line(excerpt)

    def _match_printed(self, excerpt: Excerpt) -> tuple[int, str] | None:
        if not all(any(each in line for line in excerpt.before) for each in self.all_of):
            return None
        matched = (
            (at, re.match(form, line)) for form in self.line_patterns for at, line in excerpt.lines
        )
        return next(((index, found[0]) for index, found in matched if found is not None), None)

    def _match_type(self, excerpt: Excerpt) -> tuple[int, str] | None:
        index, line = excerpt.lines[0]
        for each in self.types:
            # A name with dots includes its module.
            if any(f".{of}".endswith(f".{each}") for of in excerpt.types):
                return index, each
            name = each.rpartition(".")[2]
            if not excerpt.types and re.search(rf"(?<![\w.]){name}(?!\w)", line):
                return index, name
        return None

    def _match_text(self, excerpt: Excerpt) -> tuple[int, str] | None:
        if excerpt.is_tensorflows:
            return _find_first(excerpt.lines, self.any_of + self.tensorflows)
        return _find_first(excerpt.lines[:1] if self.is_echo else excerpt.lines, self.any_of)

    def _match_line(self, excerpt: Excerpt) -> tuple[int, str] | None:
        index, line = excerpt.lines[0][0], excerpt.lines[0][1].strip()
        if self.missing:
            parts = missing_name(line).split(".")
            if any(".".join(parts[: n + 1]) in self.missing for n in range(len(parts))):
                return index, parts[-1]
        found = next(filter(None, (re.search(each, line) for each in self.patterns)), None)
        return None if found is None else (index, found[0])


def _find_first(lines: Sequence[tuple[int, str]], texts: tuple[str, ...]) -> tuple[int, str] | None:
    return next(((index, text) for text in texts for index, line in lines if text in line), None)


# fmt: off
_LAYER = r"'(?:Sequential|Functional|Model|RNN|LSTM|GRU|SimpleRNN|Mean|Sum|\w*Accuracy)'"
_INNER_LAYER = (
    r"'(?:\w*Dense|\w*Conv\dD\w*|\w+ing\dD|\w*Dropout\w*|InputLayer|Flatten|Embedding"
    r"|\w+Normalization|Activation|Add|Concatenate)'"
)
_OPTIMIZER = r"'(?:SGD|RMSprop|Ada(?:mW?|delta|grad|max|factor)|Nadam|Ftrl|Lion|LossScale\w+)'"
_OLD_CODE = (
    Rule(Kind.TENSORFLOW1, Code.TENSORFLOW_1_CODE,
         missing=TENSORFLOW_1,
         patterns=(
             r"(?:not supported|not compatible|undefined|should be a function)\b.{0,24} eager exec",
             r"The Session graph is empty",
             r"object has no attribute 'make_(?:one_shot|initializable)_iterator'",
             r"No module named 'tensorflow\.(?:python\.estimator|compat\.v1\.estimator|contrib)\b",
             r"module '\S*keras\S*' has no attribute '(?:set|get|clear)_session'",
         )),
    Rule(Kind.KERAS3, Code.KERAS_2_CODE,
         missing=KERAS_2,
         patterns=(
             rf"{_LAYER} object has no attribute 'reset_states'|Layer `add_metric\(\)` method is",
             rf"{_INNER_LAYER} object has no attribute '(?:in|out)put_shape'",
             r"ModelCheckpoint\.__init__\(\) got an unexpected keyword argument '(?:period|opt)",
             r"has no attribute '(?:(?:fit|evaluate|predict)_generator|add_update)'",
             r"has no attribute '(?:get_(?:in|out)put_(?:shape_|mask_)?at|(?:in|out)bound_nodes)'",
             rf"{_OPTIMIZER} object has no attribute '(?:lr|decay|minimize)'",
             rf"{_OPTIMIZER} object has no attribute '_?(?:get|compute|aggregate)_gradients'",
             r"'LossScaleOptimizer' object has no attribute 'get_(?:un)?scaled_\w+'",
             r"`keras\.optimizers\.legacy` is not supported in Keras 3",
             r"Argument\(s\) not recognized: \{'lr'",
             r"(?:: |TensorFlowTrainer\.)fit\(\) got an unexpected .{1,16} '(?:work|use_m|max_q)",
             r"Trainer\.compile\(\) got an unexpected .{1,16} '(?:experimental_|sample_w|target_t)",
             r"arguments passed to \w+: \{'(?:input_length|weights|batch_input_shape|autocast)'",
             r"add_weight\(\) got multiple values for argument 'shape'|Received: add_weight\('",
             r"[Ff]ile(?:name|path)\b.{0,99} must end in `\.(?:weights\.h5|keras)`",
             r"Invalid filepath extension for saving|(?:deprecated in|available with) Keras 3\b",
             r"requires tf\.keras to be Keras version 2|Keras 3, but this is not yet supported",
             r"Keras 3 only supports|: Only input tensors may be passed as positional arguments\.",
             r"`units`, expected a positive integer\. Received: units=[1-9]\d*$",  # NumPy's
             r"A KerasTensor (?:cannot be used as input to a TensorFlow function|is symbolic)",
             r"Invalid value for argument `reduction`.{0,200}\b[Rr]eceived: reduction=auto",
             r"Only instances of `?keras\.Layer`? can be added to a Sequential model",
         )),
)
"""Code for TensorFlow 1, and code for Keras 2 that `tf_keras` still runs."""

_NAMESPACES = "google|azure|nvidia|ruamel|zope|backports|jaraco"
"""Packages that several distributions share: one of them may be missing."""

_SETUP = (
    Rule(Kind.PERMISSION, Code.LOGIN_MISSING,
         any_of=(
             "api_key not configured", "No API key configured", "gated repo", "default credentials",
             "Unable to locate credentials", "401 Client Error", "HTTP response code 401",
             "HTTP Error 401", "Anonymous caller", "does not have storage.", "kaggle.json",
             "determine credentials", "(403) when calling", "(AccessDenied) when calling",
             "(ExpiredToken) when calling", "(InvalidAccessKeyId) when calling",
             "AWS Credentials have not been set", "returned error 401", "returned error 403",
             "ask the project owner", "you do not have permission to access the requested",
         )),
    Rule(Kind.EXCEPTION, Code.SERVER_FAILED,
         types=(
             "urllib.error.URLError", "urllib.error.HTTPError", "requests.exceptions.HTTPError",
             "http.client.RemoteDisconnected", "NonMatchingChecksumError", "OfflineModeIsEnabled",
             "wandb.errors.CommError", "wandb.errors.errors.CommError", "LocalEntryNotFoundError",
         ),
         any_of=(
             "Max retries exceeded with url", "URL fetch failure on ", "CERTIFICATE_VERIFY_FAILED",
             "couldn't connect to 'http", "Couldn't reach http", " on the Hub (",
             "Couldn't resolve host name", "Unable to connect to endpoint", "for config 'default-",
             "Error executing an HTTP request", "Connection error, and we cannot find the req",
         )),
    Rule(Kind.EXCEPTION, Code.GPU_UNUSABLE,
         any_of=(
             "DNN library is not found", "libdevice not found", "NVIDIA driver on your system is",
             "CUDA driver version is insufficient", "no kernel image is available",
             "uncorrectable ECC error", "Duplicate GPU detected", "Found no NVIDIA driver",
             "No CUDA GPUs are available", "not compiled with CUDA enabled",
             "torch.cuda.is_available() is False", "No supported gpu backend",
             "invalid device ordinal", "devices are busy or unavailable", "without BLAS support",
             "cuDNN failed to initialize", "No algorithm worked!",
             "DNN library initialization failed", "JIT compilation failed",
             "GEMM launch failed", "Failed to call ThenRnn", "CUDNN_STATUS_INTERNAL_ERROR",
             "CUDNN_STATUS_EXECUTION_FAILED", "CUDNN_STATUS_NOT_INITIALIZED",
             "cuDNN launch failure", "invalid device function", "device kernel image is invalid",
             "CUDA unknown error", "cuSolver internal error", "ptxas ",
         ),
         patterns=(
             r"Unknown backend: '(?:gpu|cuda)' requested",
             r"CUDA_ERROR_(?:INVALID_(?:IMAGE|PTX)|NO_BINARY|NO_DEVICE|UNSUPPORTED_PTX|SYSTEM_)",
         ),
         line_patterns=(r"Failed to initialize NVML: .*", r"CUDA kernel failed : .*")),
    Rule(Kind.EXCEPTION, Code.VARIABLE_NOT_SET,
         patterns=(r"[Ee]nvironment variable \W?\w+\W? (?:is |was )?not (?:set|found|defined)",)),
    Rule(Kind.EXIT, Code.VARIABLE_NOT_SET,  # of a shell, by `set -u`
         line_patterns=(r"\S+: line \d+: [A-Za-z_]\w*: (?:unbound variable|parameter null).*",)),
    Rule(Kind.EXCEPTION, Code.VARIABLE_NOT_SET,  # of os.environ
         any_of=("KeyError: '",),
         frames=('"<frozen os>", line ', '/os.py", line '),
         source=r"^$|raise KeyError\(key\) from None$"),
    Rule(Kind.EXCEPTION, Code.GPU_UNUSABLE,
         types=("IndexError",),
         source=r"(?i)gpus?(?:_\w+|list)?\[|physical_devices\["),
    Rule(Kind.COLLECTIVES_LATE, Code.COLLECTIVES_LATE,
         any_of=(
             "Collective ops must be configured at program startup",
             "ensure that CollectiveOps are configured at program startup",
         )),
    Rule(Kind.KERAS3, Code.KERAS_3_USED,
         any_of=(
             "with an unsupported type (<class 'tensorflow.python.distribute.values.PerReplica'>)",
             "'PerReplica' object has no attribute",
             "'ShardedVariable' object has no attribute 'handle'",
             "'ShardedVariable' has no attribute 'handle'",
             "`Model.fit` is not supported with `ParameterServerStrategy`",
         )),
    Rule(Kind.KERAS3, Code.KERAS_3_USED,
         any_of=("you need to pass this dataset to ClusterCoordinator.create_per_worker_dataset",),
         frames=("/keras/src/",)),  # tf_keras has another path
    Rule(Kind.CLUSTER_MISMATCH, Code.TF_CONFIG_MISMATCH,
         any_of=(
             "Unexpected task registered with task_name", "Unexpected task request with task_name",
             "with a different incarnation. It has likely restarted",
             "When `cluster_spec` is given, you must also specify `task_type` and `task_id`",
         )),
    Rule(Kind.CLUSTER_MISMATCH, Code.CLUSTER_SPEC_INCOMPLETE,
         any_of=(
             "was not defined in job", "was not defined in cluster", "No such job in cluster: ",
             "No task with index ", "not found in cluster_spec", "exceeds the maximum id of ",
             "There must be at least one ps.", "There must be at least one worker.",
             "tasks can be found in `cluster_spec`",
         )),
    Rule(Kind.CLUSTER_MISMATCH, Code.CLUSTER_SPEC_INCOMPLETE,
         patterns=(r"^KeyError: '(?:chief|worker|ps|master)'$",),
         source=r"(?i)cluster|tf_?config|spec|server|address|hosts|tasks|jobs"),
    Rule(Kind.EXCEPTION, Code.EXCEPTION_RAISED,
         any_of=("KeyError: 'evaluator'", "not created in the distribution strategy scope")),
    Rule(Kind.CLUSTER_MISMATCH, Code.TF_CONFIG_REFUSED,
         frames=(
             "/distribute/multi_worker_util.py", "/cluster_resolver/tfconfig_cluster_resolver.py",
         )),
    Rule(Kind.SCRIPT_NOT_FOUND, Code.MODULE_NOT_RUNNABLE,
         line_patterns=(
             r"\S+: Error while finding module specification for .*",  # python -m package.module
             r"\S*python[\d.]*t?: No module named .*",
             r"(?!ModuleNotFoundError)\S+: No module named \S+$",
         )),
    Rule(Kind.EXCEPTION, Code.NAME_REPLACED,
         patterns=(
             rf"has no attribute '(?:{'|'.join(SUCCESSORS)})'",
             rf"{_LAYER} object has no attribute 'predict_(?:classes|proba)'",
             rf"{_OPTIMIZER} object has no attribute '(?:get_updates|[gs]et_weights)'",
             OLD_MODULES, r"(?<=mixed_precision' has no attribute ')experimental",
             r"cannot import name 'experimental(?=' from '[\w.]*mixed_precision')",
             rf"cannot import name '(?:{'|'.join(SUCCESSORS)})(?=' from '(?:keras|tensorflow)\b)",
         )),
    Rule(Kind.LIMIT, Code.FILES_EXHAUSTED,
         line_patterns=(r".*: cannot open shared object file: (?:Error 24|Too many open files)$",)),
    Rule(Kind.IMPORT_ERROR, Code.LIBRARY_NOT_LOADED,
         types=("VersionConflict", "ContextualVersionConflict", "DistributionNotFound"),
         any_of=(
             "'MessageFactory' object has no", "convert function return value to a Python",
             "cannot open shared object file: No such file", ": undefined symbol: ",
             "_ARRAY_API not found", "may indicate binary incompatibility",
             "Op type not registered '",
             "numpy.core.multiarray failed to import", "_multiarray_umath failed to import",
             "static TLS block", "invalid ELF header", "module compiled against A",
             "Descriptors cannot ", "Descriptors should not be", "incompatible Protobuf Gencode",
             ": error while loading shared libraries: ",
         ),
         patterns=(r"\bversion `\w+_[\d.]+' not found\b",),
         line_patterns=(
             r"\S+: (?:error while loading shared lib\w+|(?:relocation|symbol lookup) error): .*",
             r"Could not load library \S+\. Error: .*", r"Unable to load any of \{.*",  # cuDNN's
             r"(?:Runtime|Import)Error: (?:module compiled against A|numpy\.core\.\w+ failed to).*",
         )),
    Rule(Kind.IMPORT_ERROR, Code.NAME_NOT_IN_MODULE,
         patterns=(r"cannot import name '", rf"No module named '(?!(?:{_NAMESPACES})\.)\w+\.\w")),
    Rule(Kind.EXCEPTION, Code.NAME_NOT_IN_MODULE,
         patterns=(r"^AttributeError: .*\bmodule '\S+' has no attribute ",)),
    Rule(Kind.IMPORT_ERROR, Code.MODULE_NOT_IMPORTED,
         types=("ModuleNotFoundError", "ImportError"),
         patterns=(
             r"NotInstalledError\b", r"\b(?:is|are) not installed\b",
             r"\bpip3? install (?!(?:--upgrade|-U) pip\b)[`'\"\w-]",
             r"\b(?:must|need to|[Pp]lease) install\b", r"Could not import [\w.]+\. The use of ",
         )),
    Rule(Kind.EXCEPTION, Code.MAIN_NOT_GUARDED,
         any_of=("attempt has been made to start a new process before the",)),
    Rule(Kind.EXCEPTION, Code.MAIN_NOT_GUARDED,
         any_of=("context has already been set",), frames=("/multiprocessing/spawn.py",)),
    Rule(Kind.NO_INPUT, Code.INPUT_EMPTY,
         types=("bdb.BdbQuit", "click.exceptions.Abort"),
         patterns=(
             r"^EOFError: EOF when reading a line", r"^termios\.error: ", r"'/dev/tty'",
             r"\bno-tty\b",
         ),
         line_patterns=(r"(?:.*\S: ?)?Aborted!$",),  # click, after its question
         exit_codes=(1,)),
    Rule(Kind.NO_INPUT, Code.INPUT_EMPTY, any_of=("EOFError",), frames=("/getpass.py",)),
    Rule(Kind.PERMISSION, Code.PERMISSION_REFUSED,
         line_patterns=(r"[^']*: can't open file '.*': \[Errno (?:13|1)\] .*",)),
    Rule(Kind.SCRIPT_NOT_FOUND, Code.SHELL_NOT_SET_UP,
         any_of=("has not been properly configured to use 'conda", "before 'conda activate'"),
         line_patterns=(
             r".*\bhas not been properly configured to use 'conda .*",
             r".*Run 'conda init' before 'conda .*",
             r".*\b(?:conda|mamba|micromamba|module|pyenv|workon)(?:: command)? not found$",
         )),
    Rule(Kind.SCRIPT_NOT_FOUND, Code.SCRIPT_UNREADABLE,
         line_patterns=(
             r".*\$'[^']{0,99}\\r'", r"\S*env: .*\\r['\u2019]: No such file",
             r"(?:\S+: \d+: )?: not found$",  # dash
             r"\S+: \d+: (?:source|\[\[|declare|typeset|let|shopt|pushd|mapfile): not found$",
             r"\S+: \d+: (?:Bad substitution|\w+: Illegal option -o pipefail)$",
             r"\S+: \d+: Syntax error: (?:\"[(&]\" unexpected|Bad for loop|redirection unex)",
         )),
    Rule(Kind.SCRIPT_NOT_FOUND, Code.SCRIPT_NOT_FOUND,
         line_patterns=(
             r"\S+: can't open file '.*", r"\S+: can't find '__main__' module.*",
             r"error: Failed to spawn: .*",  # uv
         )),
    Rule(Kind.SCRIPT_NOT_FOUND, Code.CONTAINER_NOT_STARTED,
         line_patterns=(r"(?:docker: |Error: |unknown (?:shorthand )?flag: ).*",),
         exit_codes=(125,)),
    Rule(Kind.SCRIPT_NOT_FOUND, Code.CONTAINER_NOT_STARTED,
         line_patterns=(
             r"(?:exec |standard_init|.*: cannot execute ).*\b[Ee]xec format error\W*$",
             r"(?:docker: |Error: ).*\bOCI runtime .*",
         )),
    Rule(Kind.SCRIPT_NOT_FOUND, Code.CONTAINER_NOT_STARTED,
         line_patterns=(r"FATAL: {3}\S.*",), exit_codes=(255,)),  # Apptainer's
    Rule(Kind.ARGUMENTS, Code.ARGUMENTS_REFUSED,
         line_patterns=(  # of argparse, of click, of Fire and jsonargparse
             r"(?:[\w./-]+(?: [\w./-]+)*: e|E)rror: .*", r"(?:ERROR|error): .*",
         ),
         all_of=("sage: ",),
         exit_codes=(2,)),
    Rule(Kind.ARGUMENTS, Code.ARGUMENTS_REFUSED,
         types=("_exceptions.UnrecognizedFlagError", "_exceptions.IllegalFlagValueError"),  # absl's
         line_patterns=(
             r".*: error: unrecognized arguments.*",
             r".*: error: argument .*",
             r".*: error: the following arguments are required.*",
             r".*\(see --help\)$", r"Error: Unrecognized options: .*",  # tyro
             r".*--help' for help\.?$",  # click
             r".*Flags parsing error.*",  # absl
             r"Error: Command \".*\" not found\. Available commands are: .*",  # Sacred
             r"Conflicting configuration values:$",  # its, too
         ),
         patterns=(
             r"^Could not override '|^In '\S+': Could not find '|MissingMandatoryValue: ",  # Hydra
             r"^ERROR: (?:Could not consume arg|Cannot find key|Unable to index into)\b",  # Fire
         )),
    Rule(Kind.ARGUMENTS, Code.ARGUMENTS_REFUSED,
         line_patterns=(r"\s*[Uu](?:sage|SAGE):(?! *\d).*",), exit_codes=(1, 2, 64)),
)
"""Mistakes in how a cluster is set up, and in what is installed."""

_END = r"[\"')\]}. ]*(?:$|,\")"
"""The end of a line, or of a text in gRPC's JSON: no more is said of it, such as a way out."""

_NOT_ALLOCATED = (
    r"(?i)\b(?:unable|failed) to allocate (?:\d|(?:\w+ ){0,4}"
    r"(?:arrays?|buffers?|bytes|memory|request|tensors?)\b)"
)

_RESOURCES = (
    Rule(Kind.GPU_MEMORY, Code.GPU_MEMORY_EXHAUSTED,
         types=("cupy.cuda.memory.OutOfMemoryError",),
         any_of=(
             "CUDA_ERROR_OUT_OF_MEMORY", "CUDA out of memory", "cudaErrorMemoryAllocation",
             "CUDA error: out of memory", "failed. Status: out of memory",
             "CUDNN_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_ALLOC_FAILED",
             "Dst tensor is not initialized", "Failed to allocate memory for GPU",
             "failed to allocate memory on GPU", "status: Internal: out of memory",
             "status: INTERNAL: out of memory",
         ),
         patterns=(r"(?:Xla|Jax)RuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying",),
         line_patterns=(r".*\bNCCL WARN Cuda failure .{0,9}out of memory.*",)),
    Rule(Kind.GPU_MEMORY, Code.GPU_MEMORY_EXHAUSTED,
         any_of=("OOM when allocating tensor", "Out of memory while trying to allocate"),
         all_of=("GPU",)),
    Rule(Kind.GPU_MEMORY, Code.GPU_MEMORY_EXHAUSTED,
         any_of=("Out of memory while trying to allocate",), all_of=("BufferAssignment OOM",)),
    Rule(Kind.LIMIT, Code.LIMIT_HIT,
         any_of=(
             "inotify watch limit reached", "inotify instance limit reached", "[Errno 27]",
             "File too large",
         ),
         line_patterns=(r".*\bFile size limit exceeded\b.*",)),
    Rule(Kind.HOST_MEMORY, Code.MEMORY_EXHAUSTED,  # of /dev/shm
         patterns=(
             r"No space left on device: '/(?:psm_|wnsm_|dev/shm/|sem\.)",
             r"\b(?:torch_\d|dev/shm/).{0,200}No space left on device",
         )),
    Rule(Kind.EXCEPTION, Code.FILES_UNREACHED,
         any_of=(
             "[Errno 5]", "[Errno 30]", "[Errno 116]", "Stale file handle",
             "Read-only file system", "; Input/output error", "errno = 5,",
         ),
         patterns=(r"\[Errno 107\] [\w ]+: '/",),
         line_patterns=(r".*: (?:Stale file handle|Read-only file system|Input/output error)$",)),
    Rule(Kind.EXCEPTION, Code.FOLDER_CONTESTED,
         patterns=(
             r"^FileExistsError: \[Errno 17\]|\[Errno 39\]|\[Errno 16\].*\.nfs",
             r"\bcheckpoint\.tmp\w+; No such file",
             r"^FileNotFoundError: .{0,300}(?:tmp|temp|part|incomplete)\w*' -> '",
         )),
    Rule(Kind.DISK_FULL, Code.DISK_EXHAUSTED,
         any_of=(
             "[Errno 28]", "No space left on device", "[Errno 122]", "isk quota exceeded",
             "database or disk is full", "PytorchStreamWriter failed writing file",
         ),
         patterns=(r"^OSError: \d+ requested and \d+ written|container\.cc.{0,20} unexpected pos",),
         line_patterns=(r".*: (?:No space left on device|Disk quota exceeded)$",)),
    Rule(Kind.LIMIT, Code.FILES_EXHAUSTED,
         any_of=("[Errno 24]", "[Errno 23]", "Too many open files", "received 0 items of ancdata"),
         line_patterns=(rf".*\bToo many open files(?: in system)?{_END}",)),
    Rule(Kind.PERMISSION, Code.THREADS_FORBIDDEN,
         line_patterns=(
             r"OpenBLAS blas_thread_init: pthread_create .*: Operation not permitted$",
             r"(?:libgomp: Thread creation failed|OMP: System error #1): Operation not permitted$",
         )),
    Rule(Kind.LIMIT, Code.PROCESSES_EXHAUSTED,
         any_of=(
             "can't start new thread", "pthread_create", "Thread creation failed",
             "Thread::Create failed", "what():  Resource temporarily unavailable",
             "fork: Resource temporarily unavailable", "Failed to create thread",
             "thread constructor failed: ", "ThreadPoolBuildError", " native thread",
         ),
         line_patterns=(
             r"\S+: (?:line )?\d+: Cannot fork$",  # dash
             r"\S+: (?:.*: )?fork: (?:retry: )?Resource temporarily unavailable$",  # bash
             r".*\bpthread_create\b.{0,40}(?:\bfail|\b11\b).*",
             r"libgomp: Thread creation failed.*",
             r"OMP: Error #3[45]: System unable to allocate necessary resources.*",
             r".*\b[Uu]nable to create (?:new )?native thread\b.*",  # Java
         )),
    Rule(Kind.LIMIT, Code.PROCESSES_EXHAUSTED,
         any_of=("[Errno 11]",), frames=("subprocess.py", "multiprocessing/popen_", "fork(")),
    Rule(Kind.HOST_MEMORY, Code.MEMORY_EXHAUSTED,
         types=("MemoryError", "_ArrayMemoryError"),
         any_of=(
             "OOM when allocating tensor", "std::bad_alloc", "Cannot allocate memory",
             "Out of memory", "std::bad_array_new_length",
             "failed to allocate memory", "malloc failed", "mmap failed",
             "out of shared memory", "insufficient shared memory",
         ),
         patterns=(_NOT_ALLOCATED,),
         line_patterns=(
             r"slurmstepd: error: .*(?:\boom[-_]kill event|xceeded (?:job |step )?memory limit).*",
             r".*\binsufficient shared memory\b.*", r"memory allocation of \d+ bytes failed",
             r"tcmalloc: large alloc \d+ bytes == \(nil\).*", r".*\bMmapAligned\(\) failed.*",
             r"(?:jemalloc|libgomp): .*\balloc.*", r"Unable to allocate \d+ \(new failed\).*",
             r".*\bRAW: mmap (?:error|failed)\b.*",
             r"Fatal Python error: (?:.*: )?memory (?:error|allocation failed)$",
             r".*\binsufficient memory for the Java Runtime.*",
         )),
    Rule(Kind.EXCEPTION, Code.FILE_LOCKED,
         any_of=("unable to lock file", "Unable to lock file", "database is locked"),
         patterns=(
             r"^BlockingIOError: \[Errno 11\].*(?:lock|\.h5|hdf5)",
             r"^(?:filelock\.)?_?Timeout: The file lock '",
         )),
    Rule(Kind.EXCEPTION, Code.FILE_DAMAGED,
         types=("errors_impl.DataLossError", "BadGzipFile", "BadZipFile", "message.DecodeError"),
         any_of=(
             "not an sstable", "too short to be an sstable", "truncated file: eof",
             "file signature not found", "Ran out of input",
             "Read less bytes than requested", "failed finding central directory",
             "image file is truncated", "cannot identify image file", "Unknown image file format",
             "Invalid JPEG data", "Parquet magic bytes not found", "No data left in file",
             "Compressed file ended before", "while decompressing data", "unexpected end of data",
             "Error while deserializing header", "EOF: reading array ",
         ),
         patterns=(r"\bUnpicklingError: (?!Weights only load failed\. )|open \w+ \(bad .+\)",)),
    Rule(Kind.PORT_TAKEN, Code.PORT_IN_USE,
         any_of=(
             "ddress already in use", "[Errno 98]", "EADDRINUSE", "it was already in use",
             " is in use by another program",
         ),
         line_patterns=(
             rf".*\b[Aa]ddress already in use{_END}", r".*, it was already in use$",  # TensorBoard
             r"Port \d+ is in use by another program\b.*",  # Flask
         )),
    Rule(Kind.PORT_TAKEN, Code.PORT_NOT_BOUND,
         any_of=("Could not start gRPC server", "Failed to bind to address")),
    Rule(Kind.NETWORK, Code.ADDRESS_NOT_OWN,
         any_of=("[Errno 99]", "Cannot assign requested address"),
         line_patterns=(r".*\bCannot assign requested address\b.*",)),
    Rule(Kind.PERMISSION, Code.PERMISSION_REFUSED,
         types=("PermissionError", "errors_impl.PermissionDeniedError"),
         any_of=("Permission denied", "Operation not permitted"),
         line_patterns=(
             r"\S+: (?:line )?\d+: .*: Permission denied$",  # a shell
             r"docker: permission denied.*",
         ),
         exit_codes=(126,)),
)
"""What ran out or was refused: memory, disk, limits, ports, permission."""

_NO = (
    r"\b[Nn]o (?:(?:train|training|input|data|tfrecord|image|audio|video|text|csv|json|parquet"
    r"|matching|supported|valid) )?"
)
_OF_MODEL = r"(?!.*(?:[Cc]heckpoint|ckpt|[Ww]eights))"
"""Files that a program does not find may be others than those of its data."""

_NOT_A_GENERATOR = r"^(?!.*\bnext\((?:.* for .*)?$)"
"""Code without `next(x for x in ...)`, which only looks for something and finds nothing."""

_TRAINING = (
    Rule(Kind.DATA_RAN_OUT, Code.DATA_MISSING,
         any_of=(
             "Input dataset is empty", "to be a non-empty array", "data to be non-empty.",
             "(Empty Logs)",
         ),
         patterns=(
             rf"{_NO}files? (?:\w+ )?match{_OF_MODEL}", r"doesn't contain any data files",
             rf"{_NO}(?:files?|images?|samples?|records?|data)(?: were)? found\b{_OF_MODEL}",
             r"\bnum_samples=0\b", r"^ValueError: No objects to concatenate",
             r"^ValueError: need at least one array to (?:concatenate|stack)",
             r"\b[Dd]ata ?set (?:is|was) empty|\bempty data ?set\b",
         )),
    Rule(Kind.DATA_RAN_OUT, Code.DATA_EXHAUSTED,
         types=("errors_impl.OutOfRangeError", "StopIteration"),
         any_of=("End of sequence", "ran out of data"),
         source=_NOT_A_GENERATOR,
         patterns=(r"gradient_tape/.{1,300}\[0,\d",),  # of an empty batch, while others have data
         tensorflows=("OUT_OF_RANGE", "OutOfRangeError")),
    Rule(Kind.NOT_FINITE, Code.VALUES_NOT_FINITE,
         any_of=(
             "Tensor had NaN", "Tensor had Inf", "had NaN values", "NaN or Inf", "Inf and NaN",
             "NaN loss during training", "Detected Infinity or NaN",
         ),
         # No line of progress: another error may have ended what trained on.
         line_patterns=(r"(?i).{0,40}\bloss (?:is|was|=) (?:nan|inf)\b.{0,40}(?:stop|exit).*",)),
)
"""What goes wrong in training itself."""

_PROXY = Rule(
    Kind.PROXY, Code.PROXY_ANSWERED,
    any_of=("HTTP proxy returned", "HTTP CONNECT"),
    tensorflows=("http_proxy", "https_proxy", "via proxy"),
)

_MISMATCH = (
    Rule(Kind.CLUSTER_MISMATCH, Code.GROUP_SIZES_DIFFER,
         any_of=(" is joining a group with size", " is joining a group that is already full")),
    Rule(Kind.COLLECTIVE_MISMATCH, Code.COLLECTIVES_MISMATCHED,
         any_of=(
             "Shape mismatch in the collective instance", " but another member in the group ",
             " is joining a group with incompatible device type",
             "bytes where to_tensor expected", "Inconsistent output shapes, got ",
             "mismatch between collectives on ranks", "op.preamble.length <= op.nbytes",
             "MPI_ERR_TRUNCATE",
         ),
         patterns=(
             r"Collective instance \d+ expected .{0,200} but got ",
             r"\bMismatched .{0,60}: One rank ",  # Horovod's
         )),
)
"""Workers whose collectives do not agree: no single task can be blamed."""

# Echoes: what TensorFlow, gRPC and sockets say when another task has ended. If no other task ended
# or hung, the same words mean that the network failed.

_COLLECTIVE_TIMEOUT = Rule(
    Kind.UNRESPONSIVE, Code.COLLECTIVE_TIMED_OUT,
    any_of=("Collective has timed out ", "Watchdog caught collective operation timeout"),
    line_patterns=(r".*\bWatchdog caught collective operation timeout\b.*",),
    is_echo=True,
)

_COLLECTIVE_ECHO = Rule(
    Kind.CONNECTION_LOST, Code.PEERS_LOST,
    any_of=(
        "Collective ops is aborted by", "Error reported from /job:",
        "stopped sending heartbeats", "The tasks have crashed",
        "tensorflow.CoordinationService", "CoordinationServiceError", "Barrier timed out. ",
        "JAX distributed service detected fatal", " clients joined.", "detected missing heartbeats",
    ),
    tensorflows=(
        "Coordination service", "coordination service", "Barrier failed", "Barrier timed out",
        "Shutdown barrier",
    ),
    is_echo=True,
)

_CONNECTION_ECHO = Rule(
    Kind.CONNECTION_LOST, Code.PEERS_LOST,
    types=(
        "errors_impl.UnavailableError", "errors_impl.AbortedError",
        "errors_impl.CancelledError", "errors_impl.DeadlineExceededError", "ConnectionError",
        "ConnectionResetError", "ConnectionRefusedError", "ConnectionAbortedError",
        "BrokenPipeError",
    ),
    any_of=(
        "Socket closed", "Connection reset by peer", "Connection refused",
        "failed to connect to all addresses", "Broken pipe", "Stream removed",
        "Transport closed", "keepalive watchdog timeout", "remote process exited",
        "Connection closed by peer", "Horovod has been shut down", "NCCL: unhandled system error",
        "The client socket has timed out", "The client socket has failed to connect",
    ),
    patterns=(r"\bNCCL error\b(?!.{0,200}(?:invalid usage|unhandled cuda error))",),
    tensorflows=("GOAWAY", "UnavailableError", "AbortedError", "CancelledError"),
    is_echo=True,
)

RULES = (
    _PROXY, *_OLD_CODE, *_SETUP, *_MISMATCH, _COLLECTIVE_TIMEOUT, _COLLECTIVE_ECHO, *_RESOURCES,
    *_TRAINING, _CONNECTION_ECHO,
)
# fmt: on
"""All rules, in the order in which they are tried."""
