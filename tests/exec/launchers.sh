#!/bin/sh
# launchers.sh - whoever starts the ranks, the losses are those of `lockstep run --ranks 2`.
#
#   BUILD=build tests/exec/launchers.sh      from the root of the repository, after make
#
# torchrun, Open MPI and MPICH where they are installed; srun by the variables it sets;
# ranks started by hand, meeting at an address and at a file.
# shellcheck disable=SC2086 # lists of words, and files without blanks

cd "$(dirname "$0")/../.." || exit 1
. tests/exec/lib.sh

"$lockstep" run "$folder/two.json" --ranks 2 --steps 6 --json >"$folder/expect" 2>/dev/null ||
    fail "the run that all others are compared with ended with status $?"
train="$lockstep run $folder/two.json --steps 6 --json"

# launched WHAT COMMAND...: the command prints the losses of one job, once.
launched()
{
    begin "$1"
    shift
    "$@" >"$folder/out" 2>"$folder/err" || {
        fail "status $?: $(tail -n 5 "$folder/err")"
        return
    }
    same_losses "$folder/expect" "$folder/out"
}

# mpi KIND MARK: the mpirun of that kind, whatever it is called here.
mpi()
{
    for program in "mpirun.$1" "mpiexec.$1" mpirun mpiexec; do
        if "$program" --version 2>/dev/null | grep -qi "$2"; then
            echo "$program"
            return
        fi
    done
    return 1
}

# by_hand VARIABLES...: two processes; %r in the words is the rank.
by_hand()
{
    pids=
    for rank in 0 1; do
        env $(echo "$@" | sed "s/%r/$rank/g") >"$folder/rank$rank" &
        pids="$pids $!"
    done
    wait_all $pids && cat "$folder/rank0" "$folder/rank1"
}

new_port
if has torchrun; then
    launched torchrun torchrun --no-python --nproc-per-node 2 --master-port $port $train
    launched "torchrun --standalone" \
        torchrun --no-python --standalone --nproc-per-node 2 $train
else
    skip torchrun "it is not installed"
fi

if program=$(mpi openmpi 'open.mpi'); then
    as_root=
    [ "$(id -u)" = 0 ] && as_root=--allow-run-as-root
    launched "Open MPI" $program $as_root --oversubscribe -n 2 $train
    launched "Open MPI, by TCP" env LOCKSTEP_TCP_ONLY=1 \
        $program $as_root --oversubscribe -n 2 $train
else
    skip "Open MPI" "it is not installed"
fi

if program=$(mpi mpich 'hydra'); then
    launched MPICH $program -n 2 $train
else
    skip MPICH "it is not installed"
fi

slurm="SLURM_JOB_ID=$$ SLURM_STEP_ID=0 SLURM_PROCID=%r SLURM_NTASKS=2"
launched "srun, one node" by_hand $slurm SLURM_LOCALID=%r SLURM_NTASKS_PER_NODE=2 $train
launched "srun, two nodes" by_hand $slurm SLURM_LOCALID=0 SLURM_STEP_NUM_NODES=2 \
    SLURM_STEP_NODELIST=localhost,elsewhere[2-7] $train
launched "sbatch without srun" env SLURM_JOB_ID=$$ SLURM_PROCID=0 SLURM_NTASKS=1 $train

new_port
launched "--rank, tcp" by_hand $train --rank %r --world 2 --rendezvous tcp://127.0.0.1:$port
launched "--rank, file" by_hand $train --rank %r --world 2 --rendezvous file:$folder/here
launched "RANK and MASTER_ADDR" by_hand RANK=%r WORLD_SIZE=2 LOCAL_RANK=%r LOCAL_WORLD_SIZE=2 \
    MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 3)) $train
launched "--ranks, tcp" $train --rendezvous tcp://127.0.0.1:$((port + 7))
launched "--ranks, file" $train --rendezvous file:$folder/here
launched "--ranks, by TCP" env LOCKSTEP_TCP_ONLY=1 $train

begin "the rendezvous file is gone"
[ -e "$folder/here" ] && fail "it is still there" || pass
tally
