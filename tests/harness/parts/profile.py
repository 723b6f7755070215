from distrun.advice.profile import Slowdown, TaskProfile, find_slow_link, find_traffic, profile
from distrun.advice.profile import straggler
