# mpirun.sh: how we start MPI programs on this machine, and CUDA's MPS daemon. Sourced (POSIX sh) by tests/run.sh,
# tests/check-install.sh and quickstart, so that nobody needs to know mpirun's switches.
#
#   mpi_setup     sets MPI_LAUNCH, to be used as: $MPI_LAUNCH 4 program arguments
#   mps_start     starts an MPS daemon of our own if that can be done, so that ranks share a GPU at full speed
#   mps_stop      ends it

mpi_setup() {
    MPIEXEC=${MPIEXEC:-mpirun}
    if ! MPI_VERSION=$($MPIEXEC --version 2>&1); then
        echo "$MPIEXEC does not run: set MPIEXEC to the mpirun of the MPI that we were built with" >&2
        return 1
    fi
    case $MPI_VERSION in
    *"Open MPI"* | *OpenRTE* | *PRRTE*)
        # More ranks than cores is what we do here. Without --bind-to none, two runs at once would share a core.
        MPI_LAUNCH="$MPIEXEC --oversubscribe --bind-to none -np"
        if [ "$(id -u)" = 0 ]; then
            export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
        fi
        # Nothing runs on another machine: a missing ssh or network is no news.
        export OMPI_MCA_plm_rsh_agent=false OMPI_MCA_btl_base_warn_component_unused=0
        # Shared memory alone, by the layer that Open MPI would take for it: the search for networks takes a second
        # and a half, and without tcp it could end with ofi, where MPI is twice as slow.
        export OMPI_MCA_pml="${OMPI_MCA_pml:-ob1}" OMPI_MCA_btl="${OMPI_MCA_btl:-^tcp,ofi,openib}"
        ;;
    *) # MPICH and its family oversubscribe and run as root without a word.
        MPI_LAUNCH="$MPIEXEC -np"
        ;;
    esac
}

mps_start() {
    mps_folder=
    if [ -n "${CUDA_MPS_PIPE_DIRECTORY:-}" ] || [ -e /tmp/nvidia-mps/control ] ||
        ! command -v nvidia-cuda-mps-control >/dev/null; then
        return 0 # there is one already, or can't be
    fi
    mps_folder=$(mktemp -d)
    export CUDA_MPS_PIPE_DIRECTORY="$mps_folder/pipe" CUDA_MPS_LOG_DIRECTORY="$mps_folder/log"
    mkdir "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
    if ! nvidia-cuda-mps-control -d >/dev/null 2>&1; then
        echo "MPS did not start: ranks that share a GPU will take turns" >&2
        mps_forget
    fi
}

mps_stop() {
    if [ -n "${mps_folder:-}" ]; then
        echo quit | nvidia-cuda-mps-control >/dev/null 2>&1
        mps_forget
    fi
}

mps_forget() {
    rm -rf "$mps_folder"
    mps_folder=
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
}
