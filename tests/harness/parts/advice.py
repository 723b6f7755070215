from distrun.advice import gpus, model
from distrun.advice.model import Advice, Kind, Obstacle, Reason, Symptom
from distrun.advice.rules import advise, advise_by_profiles, find_slowdown
