setpriv --reuid=nobody --regid=nogroup --clear-groups env SLURM_CONF=/scratch/cluster/etc/slurm.conf scancel 5 
