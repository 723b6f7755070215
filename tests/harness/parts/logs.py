from distrun.logs import follower
from distrun.logs import Follower, JoinedLog, LatePart, TaskLog, View, line_ends, merged
from distrun.logs.line_buffer import LONGEST_LINE, LineBuffer
from distrun.logs.repeats import RepeatFolder
from distrun.logs.startup_lines import StartupFilter
from distrun.logs.view import Formatter
