#pragma once
#include "train/run_config.h"

namespace tessera {

// `tessera bench comm`: forks --ranks ranks on this host, connects them by --distributed_backend
// and measures collectives from 4 KiB to 64 MiB, in the manner of nccl-tests. Size is that of the
// larger of input and output; algbw is size / time, busbw what a link would have to carry: algbw (n
// - 1) / n, twice that for an all_reduce. Every result is checked. Exit status 1 if one is wrong or
// a rank failed. Call it while the process has one thread.
int bench_comm(const RunConfig& config);

}  // namespace tessera
