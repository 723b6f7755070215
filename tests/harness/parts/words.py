from distrun.words import causes, events, formats
from distrun.words.causes import ADVICE, TEXTS, advise_about, cause_advice, cause_text
from distrun.words.events import EventFormatter, anew_warnings, event_text, queue_text
from distrun.words.kinds import topics
from distrun.words.progress import TimeLeft, progress_words, seconds_left
from distrun.words.verdicts import evidence_lines, evidence_text
