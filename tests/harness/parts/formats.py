from distrun.words.advice import advice_text, gpus_text, reason_text, slowdown_text
from distrun.words.formats import clip, format_names, format_short, format_time, install_command
from distrun.words.formats import wrapped
