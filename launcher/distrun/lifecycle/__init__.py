"""The life of a job: (state, event) -> (state, actions). Pure: no I/O and no clock.

Every event is recorded first and then passed to :func:`step`. Replaying the record gives the same
state again. Guarantees:

1. A job ends in exactly one final phase, with one outcome, and only when no task is left.
2. The first failure that leads to no restart decides the outcome. Later failures never change it.
   Only a verdict may: if it names another task as the first cause, the exit code is that task's.
3. An attempt is asked to stop at most once for each reason: a restart, the job's end, and at once.
4. After success, errors of tasks that are being stopped are not failures.
5. An attempt begins only when the one before it has ended: no process of it is left.
6. Tasks of one restart start together: when the attempts of all of them have ended and the
   backoff has passed.
7. At most `restart.max` restarts are counted until `restart.reset_after` passes without a failure,
   and at most 20 in a row are free. A role with its own policy has its own count. A restart counts
   when it begins: until then the loss of a host may explain the failure, or the job may end.
8. The failures and restarts of an evaluator affect no other task, and not the job's restarts.
9. An independent worker or its chief that has exited 0 by itself never runs again, unless its
   policy is `on: always`.
10. The same history gives the same state and actions, also the same jitter of the backoff.
"""

from distrun.agent.protocol import StopTask as StopTask
from distrun.lifecycle.actions import Action as Action
from distrun.lifecycle.actions import Announce as Announce
from distrun.lifecycle.actions import Finish as Finish
from distrun.lifecycle.actions import MakePlan as MakePlan
from distrun.lifecycle.actions import SetTimer as SetTimer
from distrun.lifecycle.actions import StartAttempt as StartAttempt
from distrun.lifecycle.outcomes import job_failure as job_failure
from distrun.lifecycle.outcomes import may_recur as may_recur
from distrun.lifecycle.restarts import MOST_FREE_IN_A_ROW as MOST_FREE_IN_A_ROW
from distrun.lifecycle.restarts import SIGABRT as SIGABRT
from distrun.lifecycle.restarts import SIGTERM as SIGTERM
from distrun.lifecycle.restarts import SLURM_STOPS as SLURM_STOPS
from distrun.lifecycle.restarts import STALL as STALL
from distrun.lifecycle.restarts import START as START
from distrun.lifecycle.restarts import TF_PREEMPTED as TF_PREEMPTED
from distrun.lifecycle.restarts import is_host_preempted as is_host_preempted
from distrun.lifecycle.restarts import why_not_restarted as why_not_restarted
from distrun.lifecycle.state import JOB as JOB
from distrun.lifecycle.state import SAME_TIME as SAME_TIME
from distrun.lifecycle.state import SIGKILL as SIGKILL
from distrun.lifecycle.state import HostState as HostState
from distrun.lifecycle.state import Incident as Incident
from distrun.lifecycle.state import JobPhase as JobPhase
from distrun.lifecycle.state import JobState as JobState
from distrun.lifecycle.state import LostAgent as LostAgent
from distrun.lifecycle.state import TaskPhase as TaskPhase
from distrun.lifecycle.state import TaskState as TaskState
from distrun.lifecycle.state import Used as Used
from distrun.lifecycle.state import highest as highest
from distrun.lifecycle.state import total as total
from distrun.lifecycle.transitions import replay as replay
from distrun.lifecycle.transitions import step as step
