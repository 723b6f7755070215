from distrun.slurm import allocation, batch_job, commands, step_end
