from distrun import plan
from distrun.plan import HostFacts, Placed, Plan, PortNeed, place, place_again, room_of_hosts, tasks
from distrun.plan.ranks import RANKS
from distrun.preflight import Check, Grade
from distrun.preflight.judgement import Answers, HostAnswers, judge
