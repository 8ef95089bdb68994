#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// The compact lists of Slurm, as they stand in its variables.

// "node[01-03,7],gpu-a[1-2]b" is node01, node02, node03, node7, gpu-a1b, gpu-a2b, in that order, as
// `scontrol show hostnames` has it. A number has at least as many digits as the first of its range;
// of several brackets in a name the last one counts fastest. UserError, with `what` and the place,
// for another form, for characters that no host name has and for more than 65,536 hosts.
std::vector<std::string> expand_host_list(std::string_view text, std::string_view what);

// "2(x3),1" is 2, 2, 2, 1: so many tasks on each node. UserError as above.
std::vector<int> expand_task_counts(std::string_view text, std::string_view what);

}  // namespace tessera
