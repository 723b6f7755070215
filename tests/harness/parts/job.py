from distrun.job import control, events, folder, history, leftovers, py_spy, queued_job, record
from distrun.job import relay, resumption, run_spec, stacks, steps
from distrun.job.end_report import end_line, failure_report
from distrun.job.events import KINDS, Outcome, decode, encode
from distrun.job.job import Job, read_job
from distrun.job.json_output import event_fields, output_json
from distrun.job.notes import job_notes
from distrun.job.printed_progress import PrintedProgress, Reading, plain_text, read_line
from distrun.job.queued_job import QueuedJob
from distrun.job.stacks import Place, ProcessStacks, Stacks
from distrun.job.stop_order import left, order_of
from distrun.job.timing import Activity, AttemptTiming, Phase, Span, Timing
