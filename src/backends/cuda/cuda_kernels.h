#pragma once
#include "backends/cuda/device.h"
#include "backends/cuda/products.h"
#include "backends/cuda/sum_order.h"
#include "runtime/kernel_table.h"

namespace tessera::cuda {

// The kernels of a CUDA device, op by op. A launch's `run` enqueues on the device's current lane
// and returns; addresses are the device's. Sums are in a fixed order that depends on shapes only.
// `device` outlives the table and everything prepared from it.

// Every primitive that is not settled by the plan (views and placements), offload and fetch among
// them: those copy on the lane on which they run.
void register_primitive_kernels(KernelTable& table, Device& device);

// Composites. Products, those of the chunked heads too, are made by `product` where it takes the
// problem, else by own_product(); empty: all by own_product(). `head_rows`: of logits that exist
// at a time, a multiple of 128. `attention`: of a library, asked before own kernels for attention
// and its gradient, for operands that begin at multiples of 16 bytes. `slope_bytes`: that gradients
// of scores may take between the two kernels of own attention's gradient; where those of one head
// do not fit, the second computes scores again.
//
// The gradient of the head's weights is read and written once for so many rows, which takes an H100
// as long as the arithmetic of 320 of them.
constexpr int64_t kHeadRows = 2048, kSlopeBytes = int64_t{256} << 20;
void register_composite_kernels(KernelTable& table, Device& device, MakeProduct product = {},
                                int64_t head_rows = kHeadRows, Prepare attention = {},
                                int64_t slope_bytes = kSlopeBytes);

class NcclCommunicator;
// All of them, with exchanges (collective_kernels.h). What a launch takes of workspace depends on
// the node, on `product`, `attention` and `order` alone, not on the kind of device.
void register_kernels(KernelTable& table, Device& device, const MakeProduct& product,
                      NcclCommunicator* communicator, const Prepare& attention = {},
                      SumOrder order = SumOrder::kLibrary);

// What takes tensors of f16 by way of f32; to be registered last.
void register_half_kernels(KernelTable& table, Device& device);

}  // namespace tessera::cuda
