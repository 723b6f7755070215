from distrun.job.chosen_logs import followed, joined_logs
from distrun.job.control import connect, unanswered
from distrun.job.folder import BatchJob, JobFolder, JobStore, late_log_name, task_of_log
from distrun.job.history import HistoryLog, MOST_SAMPLES, Sample, sampled
from distrun.job.record import EventLog, EventReader, read
from distrun.job.resumption import spec_of
from distrun.job.scheduler import MissingCommandError, QueueEntry, SchedulerError
from distrun.job.status_view import headline
