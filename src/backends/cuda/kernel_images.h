#pragma once
#include <cstddef>
#include <span>

namespace tessera::cuda {

// The kernels of this program as nvcc made them, one fat binary a source of kernels/: machine code
// for compute capabilities 8.0 and 9.0 and PTX for later ones. Empty: it was built without them.
std::span<const std::byte* const> kernel_images();

}  // namespace tessera::cuda
