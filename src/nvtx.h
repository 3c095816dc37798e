/* NVTX ranges, by which profilers show the library's calls; nothing unless configured with --enable-nvtx. */
#ifndef PEER_NVTX_H
#define PEER_NVTX_H

#ifdef HAVE_NVTX
    #include <nvtx3/nvToolsExt.h>
    #define PEER_RANGE_BEGIN(name) nvtxRangePushA(name)
    #define PEER_RANGE_END()       nvtxRangePop()
#else
    #define PEER_RANGE_BEGIN(name) ((void)0)
    #define PEER_RANGE_END()       ((void)0)
#endif

#endif
