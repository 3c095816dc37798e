/* The bootstrap over MPI, for the files that know MPI. See internal.h for the ops that the others use. */
#ifndef PEER_BOOTSTRAP_H
#define PEER_BOOTSTRAP_H

#include <mpi.h>

#include "internal.h"

/* Duplicates mpi_comm. Collective. */
int peer_bootstrap_mpi_create(MPI_Comm mpi_comm, struct peer_bootstrap **boot);
/* MPI_Comm_split of boot's ranks. Collective. */
int peer_bootstrap_mpi_split(struct peer_bootstrap *boot, int color, int key, MPI_Comm *out);
/* PEER_SUCCESS if MPI runs and mpi_comm is a communicator that can be used here. Local. */
int peer_bootstrap_check(MPI_Comm mpi_comm);
/* Reads settings from an MPI_Info; arg is a pointer to it. */
bool peer_bootstrap_info_get(void *arg, const char *key, char *value, size_t value_bytes);
/* Has callback called when MPI_Finalize begins. */
int peer_bootstrap_at_finalize(void (*callback)(void));
/* This process's rank in MPI_COMM_WORLD. */
int peer_bootstrap_world_rank(void);
/* This rank's number among the ranks of mpi_comm that share memory with it. Collective. */
int peer_bootstrap_local_rank(MPI_Comm mpi_comm, int *local_rank);
/* A new MPI_Info of the given pairs, which end with a NULL key. */
int peer_bootstrap_info_create(const char *const pairs[][2], MPI_Info *info);

#endif
