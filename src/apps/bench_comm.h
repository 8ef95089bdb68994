#pragma once
#include <span>
#include <string>

#include "options/run_config.h"

namespace tessera {

// `tessera bench comm`, with the words behind `bench`: measures collectives from 4 KiB to 64 MiB
// between the ranks of the job that this process belongs to, in the manner of nccl-tests. One that
// belongs to none starts --ranks ranks on this host. Size is that of the larger of input and
// output; algbw is size / time, busbw what a link would have to carry: algbw (n - 1) / n, twice
// that for an all_reduce. Every result is checked. Exit status 1 if one is wrong or a rank failed.
int bench_comm(const RunConfig& config, std::span<const std::string> arguments);

}  // namespace tessera
