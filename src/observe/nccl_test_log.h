#pragma once
#include <string_view>
#include <vector>

namespace tessera {

// GB/s of the lines "# Avg bus bandwidth    : 123.45" in the output of nccl-tests or `tessera
// comm-test`, in order; other lines are passed over. UserError with `name` if there is none.
std::vector<double> average_bus_bandwidths(std::string_view log, std::string_view name);

}  // namespace tessera
