#!/bin/sh
# Tells node-reporter which job holds which GPU of this node. It writes a file for each GPU,
# named by the GPU's index, with the job's id, account, partition and user. Run it from the
# prolog and, with the argument end, from the epilog:
#
#   Prolog=/etc/slurm/prolog.d/node-reporter        slurm-prolog.sh
#   Epilog=/etc/slurm/epilog.d/node-reporter        slurm-prolog.sh end
#
# and set attribution.slurm.job_dir to the directory. dcgm-exporter reads the same files
# (--hpc-job-mapping-dir).
set -eu
dir=${NODE_REPORTER_JOBS:-/run/node-reporter-jobs}
mkdir -p "$dir"
for gpu in $(printf %s "${SLURM_JOB_GPUS:-${CUDA_VISIBLE_DEVICES:-}}" | tr , ' '); do
	case $gpu in
	*[!A-Za-z0-9-]* | '') continue ;;
	esac
	# A shared GPU may have several jobs. Each job has a line of its own.
	touch "$dir/$gpu"
	grep -v "^$SLURM_JOB_ID\( \|\$\)" "$dir/$gpu" >"$dir/.$gpu.$$" || true
	if [ "${1:-}" != end ]; then
		printf '%s account=%s partition=%s user=%s\n' "$SLURM_JOB_ID" \
			"${SLURM_JOB_ACCOUNT:-unknown}" "${SLURM_JOB_PARTITION:-unknown}" "${SLURM_JOB_USER:-unknown}" >>"$dir/.$gpu.$$"
	fi
	if [ -s "$dir/.$gpu.$$" ]; then
		mv "$dir/.$gpu.$$" "$dir/$gpu"
	else
		rm -f "$dir/.$gpu.$$" "$dir/$gpu"
	fi
done
