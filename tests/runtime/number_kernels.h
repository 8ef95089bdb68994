#pragma once
#include "runtime/kernel_table.h"

namespace tessera {

// f32 kernels for neg, add and mul, the last with a workspace of which it uses every byte.
KernelTable number_kernels();

}  // namespace tessera
