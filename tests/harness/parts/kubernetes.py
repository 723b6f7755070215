from distrun.kubernetes import batch_job, guard, in_pod, keeper, kubectl, manifest, pods, submission
from distrun.kubernetes.keeper import Keeper
from distrun.kubernetes.tfjob import convert
