from distrun.verdict import model
from distrun.verdict.analysis import analyze
from distrun.verdict.failures import Failure, FailureTracker
from distrun.verdict.log_analysis import LogAnalysis
from distrun.verdict.lone_calls import find_lone_calls
from distrun.verdict.model import Kind, LogTail, Verdict
from distrun.verdict.old_names import IN_COMPAT_V1
from distrun.verdict.success import success_verdict
from distrun.verdict.task_failures import missing_checkpoint
from distrun.verdict.trainers import without_contact
