"""Why something failed, as a value.

A cause is made where something fails: by an agent, the supervisor or the plan. Messages and the
record contain it unchanged. It becomes a sentence only where it is shown
(:mod:`distrun.words.causes`), so that no decision depends on a wording.
"""

from __future__ import annotations

import errno
from typing import Iterator, Optional, Tuple

from distrun.agent.structs import StrEnum, Struct


class Code(StrEnum):
    """What failed. Each comment names the fields of :class:`Cause` that it comes with."""

    # A task's program could not be executed.
    PROCESS_NOT_MADE = "process_not_made"  # errno
    LOG_NOT_OPENED = "log_not_opened"  # path, errno
    WORKDIR_NOT_ENTERED = "workdir_not_entered"  # path, errno
    PROGRAM_NOT_FOUND = "program_not_found"  # name, path: its working folder
    INTERPRETER_NOT_FOUND = "interpreter_not_found"  # name: the script's, path: the interpreter's
    PROGRAM_NOT_EXECUTABLE = "program_not_executable"  # name
    PROGRAM_FORMAT_UNKNOWN = "program_format_unknown"  # name
    ARGUMENTS_TOO_LONG = "arguments_too_long"
    PROGRAM_NOT_EXECUTED = "program_not_executed"  # name, errno
    AGENT_DEFECT = "agent_defect"  # text: Python's own words
    LOG_NOT_WRITTEN = "log_not_written"  # path, errno

    # An agent cannot continue.
    AGENT_TERMINATED = "agent_terminated"
    GUARD_DIED = "guard_died"
    AGENT_DIR_NOT_CREATED = "agent_dir_not_created"  # within: one of the next two for each place
    PATH_NOT_WRITABLE = "path_not_writable"  # path, errno
    PATH_CHANGEABLE = "path_changeable"  # path: another user can exchange it
    LOG_DIR_NOT_CREATED = "log_dir_not_created"  # path, errno
    LOG_DISK_FULL = "log_disk_full"  # path
    LOG_DISK_READ_ONLY = "log_disk_read_only"  # path
    LOGS_NOT_LIMITED = "logs_not_limited"  # path, errno; host and name: the folder's variable
    AGENT_FAILED = "agent_failed"  # a defect; text: Python's own words; host
    LEASE_EXPIRED = "lease_expired"  # seconds
    LINK_CLOSED = "link_closed"
    SUPERVISOR_DIED = "supervisor_died"

    # A part of what was sent to DISTRUN_NOTIFY is ignored.
    PROGRESS_EXCESSIVE = "progress_excessive"  # count: datagrams a second, total: keys, at most
    PROGRESS_FROM_STRANGER = "progress_from_stranger"  # pid, or 0; count: the number of the user

    # The other side of a link does not speak this protocol.
    REQUEST_VERSION_DIFFERS = "request_version_differs"  # count: the command's, total: the job's
    PROTOCOL_DIFFERS = "protocol_differs"  # count: the supervisor's version, total: the agent's
    FRAME_TOO_LONG = "frame_too_long"  # count: bytes
    MESSAGE_TOO_LONG = "message_too_long"  # count: bytes
    MESSAGE_INVALID = "message_invalid"  # text: how it begins
    MESSAGE_UNEXPECTED = "message_unexpected"  # name: its type, text: the kind that was expected

    # An agent reports what it cannot know, or was not asked. `name` is the type of its message.
    REPORT_INVALID = "report_invalid"  # name, text: the field and its value
    REPORT_UNASKED = "report_unasked"  # name; task: the one that it is about
    REPORT_OF_FOREIGN_TASK = "report_of_foreign_task"  # name, task
    FRAMES_DAMAGED = "frames_damaged"  # count
    LOGIN_PRINTS_ON = "login_prints_on"  # count: bytes; text: the last of them
    ORDERS_NOT_READ = "orders_not_read"
    STOP_NOT_EXECUTED = "stop_not_executed"  # seconds
    PROCESSES_NOT_ENDED = "processes_not_ended"  # text: their ids; within: why its agent is gone
    ORDER_NOT_ANSWERED = "order_not_answered"  # seconds; name: of the order, if known; task

    # Another user listens on the port of a task.
    PORT_OF_STRANGER = "port_of_stranger"  # port, task; count: the number of the user

    # Ports cannot be held. All have the host, unless said otherwise.
    # port; name, pid: the program that has it, if known; task: whose it is, of the job `text` or,
    # if that is empty, of this one; expected: the user, if another; count: 1 if the arguments of
    # the task that wanted the port have its number
    PORT_TAKEN = "port_taken"
    PORT_HELD_BY_JOB = "port_held_by_job"  # port
    PORT_NAME_TAKEN = "port_name_taken"  # port, name: the name; count: the number of its user
    PORT_PRIVILEGED = "port_privileged"  # port
    PORT_NOT_HELD = "port_not_held"  # port, errno
    FREE_PORTS_NOT_HELD = "free_ports_not_held"  # total, errno
    TOO_FEW_FREE_PORTS = "too_few_free_ports"  # count of total; text: 20000-21000, or empty: any;
    # within: a PORT_NAME_TAKEN, if there is one

    # A host cannot receive the program's files.
    FILE_NOT_WRITTEN = "file_not_written"  # path, errno
    FILE_NOT_READ = "file_not_read"  # path, errno
    FILE_CHANGED = "file_changed"  # path
    FILE_TRUNCATED = "file_truncated"  # path
    DISK_UNRELIABLE = "disk_unreliable"
    DIGEST_INVALID = "digest_invalid"  # text
    PATH_OUTSIDE_TREE = "path_outside_tree"  # path
    LINK_OUTSIDE_TREE = "link_outside_tree"  # path, name: the link's target

    # A host was probed before the first task started.
    PROBE_NOT_STARTED = "probe_not_started"  # errno
    PROBE_TIMED_OUT = "probe_timed_out"
    PROBE_DIED = "probe_died"
    PORT_NOT_LISTENING = "port_not_listening"  # port, errno
    CONNECTION_REFUSED = "connection_refused"
    CONNECTION_TIMED_OUT = "connection_timed_out"  # seconds
    NO_ROUTE = "no_route"  # errno
    CONNECTION_FAILED = "connection_failed"  # errno
    NAME_NOT_RESOLVED = "name_not_resolved"  # text: the resolver's words; or seconds: no answer
    GREETING_MISSING = "greeting_missing"  # errno, or 0
    GREETING_DIFFERENT = "greeting_different"
    SCRIPT_NOT_READ = "script_not_read"  # path, errno
    FOLDER_NOT_SHARED = "folder_not_shared"  # host, path; name: of the host that has another
    FOLDER_NOT_USABLE = "folder_not_usable"  # path; errno, or within: why
    INTERPRETER_FAILED = "interpreter_failed"  # errno; or status, text: its last line

    # A check of the preflight. The code says what was found, good or bad.
    HOST_REACHED = "host_reached"  # text: its cores, count: GPUs, version: the agent's Python
    PORTS_HELD = "ports_held"  # count
    PORTS_REACHED = "ports_reached"  # count
    PORTS_UNREACHABLE = "ports_unreachable"  # host, addresses, hosts: the callers; within: why
    PORTS_NOT_DIALLED = "ports_not_dialled"  # within: why
    BANDWIDTH_MEASURED = "bandwidth_measured"  # count, total: received, sent; bytes/s
    BANDWIDTH_LOW = "bandwidth_low"  # as above; text: the median of all hosts, as `940 MB/s`
    BANDWIDTH_UNKNOWN = "bandwidth_unknown"
    CLOCK_AGREES = "clock_agrees"
    CLOCK_DIFFERS = "clock_differs"  # seconds: below 0 if the host's clock is behind
    GPUS_UNKNOWN = "gpus_unknown"  # status, text: of nvidia-smi; neither: it did not answer
    INSPECTION_FAILED = "inspection_failed"  # within: why
    DISK_HAS_ROOM = "disk_has_room"  # count: at least so many bytes; name: workdir, logs or record
    DISK_NEARLY_FULL = "disk_nearly_full"  # count: bytes free; name as above; path
    WORKDIR_ENTERED = "workdir_entered"  # path
    WORKDIR_UNUSABLE = "workdir_unusable"  # within: why
    PROGRAM_FOUND = "program_found"  # name
    PROGRAM_UNUSABLE = "program_unusable"  # within: why
    INTERPRETER_UNUSABLE = "interpreter_unusable"  # within: why
    SCRIPT_SAME = "script_same"  # path
    SCRIPT_UNUSABLE = "script_unusable"  # name: program.sync; within: why
    SCRIPT_DIFFERS = "script_differs"  # path, name: program.sync; hosts: those that agree
    VERSION_FOUND = "version_found"  # version
    PYTHON_NOT_RUNNING = "python_not_running"  # name; within: why
    PYTHON_SLOW = "python_slow"  # name
    PYTHON_DIFFERS = "python_differs"  # name, version, expected; hosts: those that have that
    TENSORFLOW_DIFFERS = "tensorflow_differs"  # name, version, expected; hosts: as above
    TENSORFLOW_MISSING = "tensorflow_missing"  # name; hosts: those that have it
    TF_KERAS_FOUND = "tf_keras_found"  # name: of the interpreter
    TF_KERAS_MISSING = "tf_keras_missing"  # name: of the interpreter; version: of TensorFlow
    MODULES_FOUND = "modules_found"  # name: of the interpreter
    MODULES_MISSING = "modules_missing"  # name: of the interpreter; text: the modules' names
    FOLDER_SHARED = "folder_shared"  # path
    SERVERS_OPEN_TO_USERS = "servers_open_to_users"  # text: names; count: how many
    SERVERS_OPEN_TO_NETWORK = "servers_open_to_network"  # addresses: the host's
    PREFLIGHT_FAILED = "preflight_failed"  # host; within: the first failure; count: of all

    # Decided by the plan.
    TOO_FEW_SLOTS = "too_few_slots"  # count: of tasks, total: of slots
    TOO_FEW_GPUS = "too_few_gpus"  # host, count: that its tasks ask for, total: that it has; within
    ADDRESS_SHARED = "address_shared"  # tasks, hosts: one for each task; addresses: the one
    LOOPBACK_IN_CLUSTER = "loopback_in_cluster"  # tasks, hosts, addresses: one of each
    LOOPBACK_OF_HOST = "loopback_of_host"  # tasks, hosts, addresses: one of each
    TF_CONFIG_TOO_LONG = "tf_config_too_long"  # name: the variable, count: bytes

    # A host could not be reached. `commands` holds first the one that logs in to the host, `text`
    # what ssh and the login printed, and `status` or `signal` how ssh ended.
    SSH_NOT_STARTED = "ssh_not_started"  # errno
    SSH_OPTION_REFUSED = "ssh_option_refused"
    SSH_CONFIGURATION_REFUSED = "ssh_configuration_refused"
    HOST_KEY_CHANGED = "host_key_changed"
    HOST_KEY_UNKNOWN = "host_key_unknown"
    LOGIN_REFUSED = "login_refused"
    SSH_NAME_NOT_RESOLVED = "ssh_name_not_resolved"
    SSH_PORT_CLOSED = "ssh_port_closed"
    SSH_NO_ROUTE = "ssh_no_route"
    NO_COMMON_ALGORITHM = "no_common_algorithm"
    BANNER_MISSING = "banner_missing"
    SSH_TIMED_OUT = "ssh_timed_out"
    CLOSED_BY_SSHD = "closed_by_sshd"
    CLOSED_BY_PROXY = "closed_by_proxy"
    JUMP_HOST_FAILED = "jump_host_failed"  # name: the jump host, if known; within: why
    SSH_FAILED = "ssh_failed"
    LOGIN_TIMED_OUT = "login_timed_out"  # seconds
    PYTHON_MISSING = "python_missing"
    PYTHON_TOO_OLD = "python_too_old"  # name: its version, if known
    PYTHON_NOT_EXECUTABLE = "python_not_executable"
    ACCOUNT_RUNS_NO_COMMANDS = "account_runs_no_commands"
    INPUT_TAKEN_BY_LOGIN = "input_taken_by_login"
    REMOTE_DISK_FULL = "remote_disk_full"
    AGENT_NOT_STARTED = "agent_not_started"
    AGENT_NOT_CONFIGURED = "agent_not_configured"  # name: what moves its folder; within: why
    HOST_UNUSABLE = "host_unusable"  # host; within: why
    HOSTS_UNUSABLE = "hosts_unusable"  # count: of all hosts; within: a HOST_UNUSABLE each

    # The link to an agent was lost, or the agent ended.
    SUPERVISOR_FAILED = "supervisor_failed"  # a defect; text: Python's own words; path: its log
    AGENT_EXITED = "agent_exited"  # status or signal, text
    AGENT_SHUT_DOWN = "agent_shut_down"
    AGENT_NOT_NEEDED = "agent_not_needed"
    AGENT_GONE = "agent_gone"  # within: why the link was lost, if known
    AGENT_ABANDONED = "agent_abandoned"  # pid: the agent's, if known
    SSH_ENDED = "ssh_ended"  # status or signal, text
    NOT_ANSWERED = "not_answered"
    SSH_NOT_ENDED = "ssh_not_ended"
    HEARTBEAT_MISSING = "heartbeat_missing"
    HOST_SILENT_TOO_LONG = "host_silent_too_long"  # seconds; within: as of AGENT_GONE
    LAUNCHER_SUSPENDED = "launcher_suspended"  # seconds

    # Slurm ended the step of an agent, or did not start it. `name` is the id of Slurm's job, `text`
    # what Slurm printed.
    SLURM_TIME_LIMIT = "slurm_time_limit"
    SLURM_OUT_OF_MEMORY = "slurm_out_of_memory"
    SLURM_PREEMPTED = "slurm_preempted"
    SLURM_NODE_FAILED = "slurm_node_failed"
    SLURM_CANCELLED = "slurm_cancelled"
    SLURM_ALLOCATION_ENDS = "slurm_allocation_ends"
    SLURM_JOB_ENDED = "slurm_job_ended"  # text: its state, path: what it printed
    SRUN_NOT_STARTED = "srun_not_started"  # errno
    SRUN_FAILED = "srun_failed"  # status or signal
    SRUN_TIMED_OUT = "srun_timed_out"

    # A pod cannot be a host, or is one no more. `name` is the pod's, `text` what Kubernetes says.
    POD_NOT_CREATED = "pod_not_created"
    POD_UNSCHEDULABLE = "pod_unschedulable"
    POD_QUEUED = "pod_queued"
    POD_PENDING = "pod_pending"
    POD_IMAGE_MISSING = "pod_image_missing"  # path: the image
    POD_NOT_STARTED = "pod_not_started"  # status, or None
    POD_PREEMPTED = "pod_preempted"
    POD_DELETED = "pod_deleted"
    POD_OUT_OF_MEMORY = "pod_out_of_memory"
    POD_ENDED = "pod_ended"  # status, or None
    KUBECTL_NOT_STARTED = "kubectl_not_started"  # errno
    KUBECTL_FAILED = "kubectl_failed"  # status or signal, text
    KUBECTL_ENDED = "kubectl_ended"  # status or signal, text: the link is lost

    # The logs of a host are not all here.
    LOG_PART_MISSING = "log_part_missing"  # path
    LOG_REMOVED = "log_removed"  # path
    LOGS_TOO_SLOW = "logs_too_slow"
    LOG_COPY_NOT_WRITTEN = "log_copy_not_written"  # path, errno
    RESULTS_NOT_FETCHED = "results_not_fetched"  # host, text; or within: why
    LOGS_LEFT_ON_HOST = "logs_left_on_host"  # host, path; within: why

    # Hosts cannot receive the program's files.
    FILES_REFUSED = "files_refused"  # host, name: the variable that moves its copy; within: why

    # Hosts cannot be prepared for a job, or the job cannot continue.
    FILES_REFUSED_BY_HOSTS = "files_refused_by_hosts"  # within: a FILES_REFUSED each
    ONE_MACHINE_TWICE = "one_machine_twice"  # host, name: the same machine's other name, port
    PORTS_REFUSED = "ports_refused"  # host; within: a cause for each port
    HOST_NOT_PREPARED = "host_not_prepared"  # host; within: why
    NO_HOST_ANSWERED = "no_host_answered"
    SEVERAL = "several"  # count: of all hosts; within: a cause for each that failed
    PLAN_NOT_WRITTEN = "plan_not_written"  # path, errno
    RECORD_NOT_WRITTEN = "record_not_written"  # path, errno, name: the variable that moves it
    PROC_MISSING = "proc_missing"
    JOB_FOLDER_NOT_CREATED = "job_folder_not_created"  # path, errno

    # TensorBoard ended, or was not started.
    TENSORBOARD_WITHOUT_HOST = "tensorboard_without_host"
    TENSORBOARD_NOT_STARTED = "tensorboard_not_started"  # errno, or within: why
    TENSORBOARD_SILENT = "tensorboard_silent"  # seconds, path: its log
    TENSORBOARD_EXITED = "tensorboard_exited"  # status or signal, path: its log

    # A job is resumed.
    JOB_RESUMED = "job_resumed"
    FORMER_HOST_UNREACHABLE = "former_host_unreachable"  # host; within: why
    FORMER_TASKS_ALIVE = "former_tasks_alive"  # host; text: the ids of their processes
    FORMER_HOST_ASSUMED_DEAD = "former_host_assumed_dead"
    FORMER_LEASE_OVER = "former_lease_over"  # seconds; within: why the host was not reached

    # Somebody asked for the job's end.
    STOPPED_BY_COMMAND = "stopped_by_command"  # name: the command
    LAUNCH_SIGNALLED = "launch_signalled"  # signal
    OUTPUT_READER_GONE = "output_reader_gone"
    SUPERVISOR_SIGNALLED = "supervisor_signalled"  # signal
    LAUNCH_COMMAND_DIED = "launch_command_died"

    # How a task ended. Without `task` these stand as evidence, which names the task already.
    TASK_EXITED = "task_exited"  # task, status
    TASK_KILLED = "task_killed"  # task, signal
    TASK_EXITED_EARLY = "task_exited_early"  # task: a server; tasks: the deciding ones
    TASK_NOT_STARTED = "task_not_started"  # task, within: why
    TASKS_LOST_WITH_HOST = "tasks_lost_with_host"  # tasks, host, hosts: all of several
    # within: why `host` was lost
    LOST_WITH_HOST = "lost_with_host"  # within: why the host was lost
    OOM_KILL_LOGGED = "oom_kill_logged"  # text: the record in the kernel's log
    OOM_KILL_COUNTED = "oom_kill_counted"  # path: the cgroup's file; count, total: before, after
    # name: of the limit; path: its cgroup; total: its value, expected: how far it may be raised;
    # count: what was in use, or of pids.max: what it has refused
    RESOURCE_LIMIT = "resource_limit"
    EXITED_AS_SIGNALLED = "exited_as_signalled"  # status, signal: a shell says so of its child

    # What became of a job or a host.
    JOB_SUCCEEDED = "job_succeeded"
    JOB_STOPPED = "job_stopped"  # within: who or what stopped it
    RESTARTS_USED_UP = "restarts_used_up"  # count, within: the failure after them
    NOT_RESTARTED = "not_restarted"  # within: the failure; why nothing restarts after it, as below
    STATUS_EXCLUDED = "status_excluded"  # name: the key `never_on`, status
    STATUS_NOT_INCLUDED = "status_not_included"  # name: the key `on`, text: its value, status
    RESTART_MAX_REACHED = "restart_max_reached"  # name: the key `max`, count: its value
    RESTART_NOT_APPLICABLE = "restart_not_applicable"  # neither a task's exit nor a stall
    FAILURE_RECURS = "failure_recurs"  # count: of attempts in a row
    LEADER_FINISHED = "leader_finished"  # task: the chief, or without one worker 0
    NO_ROOM = "no_room"  # tasks
    HOST_FAILS_TASKS = "host_fails_tasks"  # host, count: in a row
    HOST_LOST = "host_lost"  # host, within: why
    HOST_FAILED = "host_failed"  # host, within: why
    # task, tasks: those that wait for it, name: the address where it should listen, or count: 1
    # for a line that it should print, text: a regular expression for that
    TASK_NOT_READY = "task_not_ready"
    LINE_SEARCH_BEHIND = "line_search_behind"  # task, text: as above, count: bytes, total
    # seconds, tasks: those still starting; within: the hosts, or what the tasks wait for
    START_TIMED_OUT = "start_timed_out"
    RUN_TIMED_OUT = "run_timed_out"  # seconds
    # seconds; tasks, name and text: those that were elsewhere, and where; path: where a program
    # that waits for its children has forked them
    STALLED = "stalled"
    # likewise; expected: a call as in COLLECTIVES_MISMATCHED's path
    TASKS_QUIET = "tasks_quiet"
    # seconds; expected: likewise; tasks: those at work while the others wait, or none; text: where
    TASKS_STOPPED = "tasks_stopped"

    # What a verdict has found. `task` is the task; `text` is quoted from its log; `name` is the
    # place in the user's program, as `train.py:6 in main`.
    COLLECTIVES_LATE = "collectives_late"  # text, name
    # text, name; path: a call that only some tasks make, as `train.py:15 calls evaluate`; no task
    COLLECTIVES_MISMATCHED = "collectives_mismatched"
    # text, name; task or tasks: those that were late; expected: a task that waited; within: how far
    # each was, and the limit; path: as above
    COLLECTIVE_TIMED_OUT = "collective_timed_out"
    COLLECTIVE_LIMIT = "collective_limit"  # seconds; path: where the program sets it
    GROUP_SIZES_DIFFER = "group_sizes_differ"  # text, name; without task
    KERAS_3_USED = "keras_3_used"  # text, name; version: program.keras, if that is set
    KERAS_2_CODE = "keras_2_code"  # text, name; version: as above
    TENSORFLOW_1_CODE = "tensorflow_1_code"  # text, name
    CLUSTER_SPEC_INCOMPLETE = "cluster_spec_incomplete"  # text, name
    TF_CONFIG_MISMATCH = "tf_config_mismatch"  # text, name
    TF_CONFIG_REFUSED = "tf_config_refused"  # text, name
    MODULE_NOT_RUNNABLE = "module_not_runnable"  # text, name
    MODULE_NOT_IMPORTED = "module_not_imported"  # text, name
    NAME_NOT_IN_MODULE = "name_not_in_module"  # text, name
    MAIN_NOT_GUARDED = "main_not_guarded"  # text, name
    INPUT_EMPTY = "input_empty"  # text, name
    LIBRARY_NOT_LOADED = "library_not_loaded"  # text, name
    GPU_UNUSABLE = "gpu_unusable"  # text, name
    SERVER_FAILED = "server_failed"  # text, name
    VARIABLE_NOT_SET = "variable_not_set"  # text, name
    LOGIN_MISSING = "login_missing"  # text, name
    FILES_UNREACHED = "files_unreached"  # text, name
    FOLDER_CONTESTED = "folder_contested"  # text, name
    SCRIPT_UNREADABLE = "script_unreadable"  # text, name
    SCRIPT_NOT_FOUND = "script_not_found"  # text, name
    ARGUMENTS_REFUSED = "arguments_refused"  # text, name; path: `distrun run`, if that gave them
    PERMISSION_REFUSED = "permission_refused"  # text, name
    GPU_MEMORY_EXHAUSTED = "gpu_memory_exhausted"  # text, name
    MEMORY_EXHAUSTED = "memory_exhausted"  # text, name
    DISK_EXHAUSTED = "disk_exhausted"  # text, name
    FILES_EXHAUSTED = "files_exhausted"  # text, name
    NAME_REPLACED = "name_replaced"  # text, name; expected: what stands in its place
    FILE_LOCKED = "file_locked"  # text, name
    FILE_DAMAGED = "file_damaged"  # text, name
    SHELL_NOT_SET_UP = "shell_not_set_up"  # text, name
    CONTAINER_NOT_STARTED = "container_not_started"  # text, name
    PROCESSES_EXHAUSTED = "processes_exhausted"  # text, name
    THREADS_FORBIDDEN = "threads_forbidden"  # text, name
    LIMIT_HIT = "limit_hit"  # text, name: of file sizes, processor time or the like
    # within: the limit of those above and of KILLED_FOR_MEMORY, or who has the port
    PORT_IN_USE = "port_in_use"  # text, name
    PORT_NOT_BOUND = "port_not_bound"  # text, name
    ADDRESS_NOT_OWN = "address_not_own"  # text, name
    OWN_PORT_IN_USE = "own_port_in_use"  # text, name, port: the one held for the task
    SOME_PORT_IN_USE = "some_port_in_use"  # text, name, port: the task's; it may be another
    DATA_EXHAUSTED = "data_exhausted"  # text, name; tasks, expected: who exited 0 at which step
    DATA_MISSING = "data_missing"  # the same
    USAGE_SHOWN = "usage_shown"  # tasks, text
    VALUES_NOT_FINITE = "values_not_finite"  # text, name
    PROXY_ANSWERED = "proxy_answered"  # text, name
    PEERS_LOST = "peers_lost"  # text, name
    EXCEPTION_RAISED = "exception_raised"  # text, name
    CHECKPOINT_NOT_FOUND = "checkpoint_not_found"  # text, name, path, host; within: a FOLDER_...
    FILE_NOT_SENT = "file_not_sent"  # text, name, path: the file
    FILE_ELSEWHERE = "file_elsewhere"  # text, name, path: of the file, expected: the tasks' folder
    INTERRUPTED = "interrupted"  # name
    CHILD_KILLED = "child_killed"  # task, pid, signal or status; within: shows that memory ran out
    KILLED_FOR_MEMORY = "killed_for_memory"  # host
    KILLED_FROM_OUTSIDE = "killed_from_outside"  # signal, status: where a shell reports it
    PREEMPTED = "preempted"  # signal or status; path: where its script may have sent the signal
    CRASHED = "crashed"  # signal or status; text, name
    SHELL_FAILED = "shell_failed"  # status: 126 or 127
    EXITED_BY_ITSELF = "exited_by_itself"  # status; name: a variable to set, or sys.exit
    EXITED_AFTER_EXCEPTION = "exited_after_exception"  # status, text, name
    EXITED_WHILE_NEEDED = "exited_while_needed"  # name: the role, if its tasks may be independent
    SUCCESS_QUALIFIED = "success_qualified"  # within: what speaks against the success
    LEFT_AT_WORK = "left_at_work"  # tasks, count: processes of each, text: their commands
    CHILDREN_FAIL = "children_fail"  # task, signal or status, count, seconds, pid: the last one
    CHILD_CRASHED = "child_crashed"  # tasks, signal
    # tasks, text, name; path: what hides the exit code, expected: the step at which it gave up
    EXCEPTION_HIDDEN = "exception_hidden"
    EXCEPTION_ASIDE = "exception_aside"  # tasks, text, name
    COMMAND_FAILED = "command_failed"  # tasks, text, name, path: what hides the exit code
    TIMEOUT_HIDDEN = "timeout_hidden"  # tasks, seconds, path: what hides the exit code
    # tasks; text: where it was then, name: the task that came furthest, expected: to where
    LEFT_BEHIND = "left_behind"
    PREEMPTED_SILENTLY = "preempted_silently"
    NEVER_LISTENED = "never_listened"  # tasks, name: the strategy's class
    LISTENS_ON_LOOPBACK = "listens_on_loopback"  # task; addresses: where; name: its own address
    TRAINED_ALONE = "trained_alone"  # tasks
    STARTS_UNEVEN = "starts_uneven"  # within: a WAS_AT of each task, FOLDER_NOT_SHARED
    WAS_AT = "was_at"  # task, text: the step, path: of the checkpoint, if known
    SUSPENDED = "suspended"
    NOT_ANSWERING = "not_answering"
    # text: the address, or port; name: the address in the plan; tasks: others with that address
    # or port; path: where the program sets TF_CONFIG, as `train.py:6`
    SERVED_ELSEWHERE = "served_elsewhere"
    LISTENING = "listening"  # port
    WAITED_FOR_OTHERS = "waited_for_others"  # text: for how many; count: how many there are
    RECORD_REMOVED = "record_removed"  # task, within: why it could not be started
    JOB_DID_NOT_START = "job_did_not_start"  # seconds; within: what kept hosts from it
    JOB_DID_NOT_END = "job_did_not_end"  # seconds
    JOB_DISK_FULL = "job_disk_full"  # name: the variable of its folder; host, within
    NO_OUTPUT = "no_output"
    VERDICT_MISSING = "verdict_missing"  # within: how the job ended

    UNCODED = "uncoded"  # text: in words, of an error without a cause


class Subject(StrEnum):
    """What a check of the preflight examined, in the order in which a job needs it."""

    REACHED = "reached"
    PREPARATION = "preparation"
    NETWORK = "network"
    BANDWIDTH = "bandwidth"
    CLOCK = "clock"
    GPUS = "gpus"
    INSPECTION = "inspection"
    DISK = "disk"
    WORKDIR = "workdir"
    SHARED = "shared"
    PROGRAM = "program"
    SCRIPT = "script"
    PYTHON = "python"
    TENSORFLOW = "tensorflow"
    KERAS = "keras"
    MODULES = "modules"
    SECURITY = "security"


class Cause(Struct):
    """A code with its parameters; those that a code does not come with are empty."""

    code: Code
    task: str = ""  # as `worker:0`
    host: str = ""  # its name in the spec
    path: str = ""
    name: str = ""  # of a program, variable or the like
    port: int = 0
    pid: int = 0
    errno: int = 0
    signal: int = 0
    status: Optional[int] = None  # an exit code
    seconds: float = 0.0
    count: int = 0
    total: int = 0  # `count` of how many
    commands: Tuple[str, ...] = ()  # to try, as a shell takes them
    version: str = ""
    expected: str = ""  # the version that it should have
    hosts: Tuple[str, ...] = ()
    addresses: Tuple[str, ...] = ()  # of tasks, as `10.0.0.5:20000`
    text: str = ""  # foreign words, such as what ssh said; never distrun's own
    tasks: Tuple[str, ...] = ()
    within: "Tuple[Cause, ...]" = ()  # the causes of this one

    def chain(self) -> "Iterator[Cause]":
        """Yield this cause and all that led to it."""
        yield self
        for each in self.within:
            yield from each.chain()

    @property
    def is_disk_full(self) -> bool:
        """Whether a disk, or the user's share of it, is full."""
        full = (errno.ENOSPC, errno.EDQUOT)
        return any(each.errno in full or each.code is Code.LOG_DISK_FULL for each in self.chain())


class CauseError(Exception):
    """Carries the cause of a failure."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause)
        self.cause = cause
