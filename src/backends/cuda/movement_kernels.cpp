#include <array>
#include <bit>
#include <limits>

#include "backends/cuda/kernel_launch.h"
#include "backends/cuda/primitive_kernels.h"
#include "base/float16.h"
#include "base/random.h"
#include "ops/primitive/random.h"
#include "ops/primitive/shaping.h"

namespace tessera::cuda {
namespace {

// The bits of a number in a dtype, rounded to nearest even; integers toward zero.
uint64_t bits_of(DType dtype, double value) {
  auto integer = [value]<class T>(T) -> T {
    constexpr auto kLowest = static_cast<double>(std::numeric_limits<T>::min());
    if (value != value) return 0;
    if (value < kLowest) return std::numeric_limits<T>::min();
    if (value >= -kLowest) return std::numeric_limits<T>::max();
    return static_cast<T>(value);
  };
  switch (dtype) {
    case DType::kF64: return std::bit_cast<uint64_t>(value);
    case DType::kF32: return std::bit_cast<uint32_t>(static_cast<float>(value));
    case DType::kBF16: return BF16(static_cast<float>(value)).bits;
    case DType::kF16: return F16(static_cast<float>(value)).bits;
    case DType::kI64: return static_cast<uint64_t>(integer(int64_t{}));
    case DType::kI32: return static_cast<uint32_t>(integer(int32_t{}));
    case DType::kBool: return value != 0;
  }
  return 0;
}

// Elements of a box copied from one tensor to another.
BoxCopy box_copy(const Shape& box, const std::vector<int64_t>& from_strides,
                 const std::vector<int64_t>& to_strides, int64_t from, int64_t to) {
  BoxCopy copy;
  copy.from_begin = from;
  copy.to_begin = to;
  for (size_t d = 0; d < box.size(); ++d) {
    copy.count *= box[d];
    add_dim({&copy.from, &copy.to}, box[d], {from_strides[d], to_strides[d]});
  }
  return copy;
}

// The same copy with elements that are `factor` of these, if it consists of them.
std::optional<BoxCopy> in_larger_elements(BoxCopy copy, int64_t factor) {
  const int32_t last = copy.from.dims - 1;
  if (last < 0 || copy.from_begin % factor != 0 || copy.to_begin % factor != 0) return {};
  for (Walk* walk : {&copy.from, &copy.to}) {
    if (walk->steps[last] != 1 || walk->sizes[last] % factor != 0) return {};
    walk->sizes[last] /= factor;
    for (int32_t d = 0; d < last; ++d) {
      if (walk->steps[d] % factor != 0) return {};
      walk->steps[d] /= factor;
    }
  }
  copy.count /= factor;
  copy.from_begin /= factor;
  copy.to_begin /= factor;
  return copy;
}

// A copy by elements as large as it allows, where the addresses are multiples of them.
class BoxCopier {
 public:
  BoxCopier(Device& device, const BoxCopy& copy, DType dtype)
      : device_(&device), bytes_(size_of(dtype)), plain_(copy), wide_(copy), wide_bytes_(bytes_) {
    for (int64_t bytes = 16; bytes > bytes_; bytes /= 2) {
      if (auto wide = in_larger_elements(copy, bytes / bytes_)) {
        wide_ = *wide;
        wide_bytes_ = bytes;
        break;
      }
    }
    plain_kernel_ = find_kernel(device, cat("copy_box_", bytes_));
    wide_kernel_ = find_kernel(device, cat("copy_box_", wide_bytes_));
  }

  void run(const void* x, void* y) const {
    const auto addresses = reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y);
    const bool wide = addresses % static_cast<uintptr_t>(wide_bytes_) == 0;
    const BoxCopy& copy = wide ? wide_ : plain_;
    launch_threads(*device_, wide ? wide_kernel_ : plain_kernel_, copy.count, x, y, copy);
  }

 private:
  Device* device_;
  int64_t bytes_;
  BoxCopy plain_, wide_;
  int64_t wide_bytes_;
  Kernel plain_kernel_, wide_kernel_;
};

// The one operand copied into the whole result, with the given strides in the operand for each dim
// of the result.
Prepared copy_launch(const PrepareContext& context, const std::vector<int64_t>& from_strides,
                     int64_t from, Device& device) {
  const Shape& shape = context.outputs[0].shape;
  BoxCopier copier(device, box_copy(shape, from_strides, row_major_strides(shape), from, 0),
                   context.outputs[0].dtype);
  return Launch{launch_name(context), 0,
                [copier](const LaunchArguments& a) { copier.run(a.inputs[0], a.outputs[0]); }};
}

// offload and fetch.
Prepared prepare_transfer(const PrepareContext& context, Device& device) {
  return Launch{launch_name(context), 0,
                [&device, bytes = context.inputs[0].bytes()](const LaunchArguments& a) {
                  if (bytes > 0) device.copy(a.outputs[0], a.inputs[0], bytes);
                }};
}

Prepared prepare_transpose(const PrepareContext& context, Device& device) {
  std::vector<int64_t> strides = row_major_strides(context.inputs[0].shape), steps;
  for (int64_t d : static_cast<const Transpose&>(context.op).order())
    steps.push_back(strides[static_cast<size_t>(d)]);
  return copy_launch(context, steps, 0, device);
}

Prepared prepare_broadcast(const PrepareContext& context, Device& device) {
  std::vector<int64_t> strides = row_major_strides(context.inputs[0].shape);
  std::vector<int64_t> steps(context.outputs[0].shape.size(), 0);
  const auto& dims = static_cast<const Broadcast&>(context.op).dims();
  for (size_t i = 0; i < dims.size(); ++i) steps[static_cast<size_t>(dims[i])] = strides[i];
  return copy_launch(context, steps, 0, device);
}

Prepared prepare_slice(const PrepareContext& context, Device& device) {
  const auto& slice = static_cast<const Slice&>(context.op);
  std::vector<int64_t> strides = row_major_strides(context.inputs[0].shape);
  return copy_launch(context, strides, slice.begin() * strides[static_cast<size_t>(slice.dim())],
                     device);
}

// The copy of a tensor of shape `x` to position `begin` along `dim` of a tensor of shape `y`.
BoxCopy placement(const Shape& x, const Shape& y, int64_t dim, int64_t begin) {
  std::vector<int64_t> to_strides = row_major_strides(y);
  return box_copy(x, row_major_strides(x), to_strides, 0,
                  begin * to_strides[static_cast<size_t>(dim)]);
}

// `count` positions from `begin` along `dim` of a tensor of shape `y`.
BoxCopy filling(const Shape& y, int64_t dim, int64_t begin, int64_t count) {
  Shape box = y;
  box[static_cast<size_t>(dim)] = count;
  std::vector<int64_t> strides = row_major_strides(y);
  return box_copy(box, strides, strides, 0, begin * strides[static_cast<size_t>(dim)]);
}

Prepared prepare_concatenate(const PrepareContext& context, Device& device) {
  int64_t dim = static_cast<const Concatenate&>(context.op).dim(), begin = 0;
  std::vector<BoxCopier> copiers;
  for (const TensorType& x : context.inputs) {
    copiers.emplace_back(device, placement(x.shape, context.outputs[0].shape, dim, begin), x.dtype);
    begin += x.shape[static_cast<size_t>(dim)];
  }
  return Launch{launch_name(context), 0, [copiers](const LaunchArguments& a) {
                  for (size_t i = 0; i < copiers.size(); ++i)
                    copiers[i].run(a.inputs[i], a.outputs[0]);
                }};
}

Prepared prepare_pad(const PrepareContext& context, Device& device) {
  const auto& pad = static_cast<const Pad&>(context.op);
  const Shape &x = context.inputs[0].shape, &y = context.outputs[0].shape;
  DType dtype = context.outputs[0].dtype;
  auto dim = static_cast<size_t>(pad.dim());
  int64_t after = pad.low() + x[dim];
  BoxCopier copier(device, placement(x, y, pad.dim(), pad.low()), dtype);
  BoxCopy low = filling(y, pad.dim(), 0, pad.low()),
          high = filling(y, pad.dim(), after, y[dim] - after);
  Kernel fill = find_kernel(device, cat("fill_box_", size_of(dtype)));
  return Launch{launch_name(context), 0,
                [=, &device, bits = bits_of(dtype, pad.value())](const LaunchArguments& a) {
                  copier.run(a.inputs[0], a.outputs[0]);
                  for (const BoxCopy& box : {low, high})
                    launch_threads(device, fill, box.count, a.outputs[0], box, bits);
                }};
}

Prepared prepare_constant(const PrepareContext& context, Device& device) {
  const TensorType& type = context.outputs[0];
  uint64_t bits = bits_of(type.dtype, static_cast<const Constant&>(context.op).value());
  Kernel kernel = find_kernel(device, cat("fill_", size_of(type.dtype)));
  return Launch{launch_name(context), 0,
                [=, &device, n = type.elements()](const LaunchArguments& a) {
                  launch_vectors(device, kernel, n, a.outputs[0], n, bits);
                }};
}

Prepared prepare_table(const PrepareContext& context, Device& device) {
  DType dtype = context.outputs[0].dtype;
  const std::vector<double>& values = static_cast<const Table&>(context.op).values();
  std::vector<TableChunk> chunks(blocks_for(static_cast<int64_t>(values.size()), kTableChunk));
  for (size_t i = 0; i < values.size(); ++i)
    chunks[i / kTableChunk].bits[i % kTableChunk] = bits_of(dtype, values[i]);
  Kernel kernel = find_kernel(device, cat("table_", size_of(dtype)));
  return Launch{
      launch_name(context), 0, [=, &device, size = values.size()](const LaunchArguments& a) {
        auto* y = a.output<std::byte>(0);
        for (size_t i = 0; i < chunks.size(); ++i) {
          auto count = static_cast<int32_t>(std::min<size_t>(kTableChunk, size - i * kTableChunk));
          void* begin = y + static_cast<int64_t>(i) * kTableChunk * size_of(dtype);
          device.launch(kernel, {1}, {kTableChunk}, 0, begin, count, chunks[i]);
        }
      }};
}

Prepared prepare_iota(const PrepareContext& context, Device& device) {
  const TensorType& type = context.outputs[0];
  if (type.dtype == DType::kF16 || type.dtype == DType::kBool)
    return not_taken(context, type.dtype);
  auto dim = static_cast<size_t>(static_cast<const Iota&>(context.op).dim());
  int64_t size = type.shape[dim], repeat = row_major_strides(type.shape)[dim];
  Kernel kernel = find_kernel(device, "iota", name(type.dtype));
  return Launch{launch_name(context), 0,
                [=, &device, n = type.elements()](const LaunchArguments& a) {
                  launch_threads(device, kernel, n, a.outputs[0], n, repeat, size);
                }};
}

Prepared prepare_random_bits(const PrepareContext& context, Device& device) {
  const auto& op = static_cast<const RandomBits&>(context.op);
  RandomPlaces places = random_places(context.outputs[0].shape, op.part());
  Kernel kernel = find_kernel(device, "random_bits");
  return Launch{launch_name(context), 0,
                [=, &device, n = context.outputs[0].elements(), stream = stream_of(op.stream()),
                 whole = op.part().whole()](const LaunchArguments& a) {
                  const void* begin = whole ? nullptr : a.inputs[1];
                  launch_threads(device, kernel, n, a.inputs[0], begin, a.outputs[0], n, stream,
                                 places);
                }};
}

Prepared prepare_gather(const PrepareContext& context, Device& device) {
  const TensorType &table = context.inputs[0], &ids = context.inputs[1];
  return row_gather(device, launch_name(context), table, ids, 0, 1,
                    IdCheck(device, context, ids, table.shape[0]));
}

}  // namespace

RandomPlaces random_places(const Shape& shape, const TensorPart& part) {
  RandomPlaces p;
  const auto last = static_cast<int64_t>(shape.size()) - 1;
  for (int64_t d = 1; d < last; ++d) p.lines *= shape[static_cast<size_t>(d)];
  if (last >= 1) p.width = shape[static_cast<size_t>(last)];
  int64_t whole_width = p.width;
  p.run = p.whole_run = std::max<int64_t>(1, p.lines);
  if (!part.whole() && part.dim == last) {
    whole_width = part.size;
    p.columns_of_begin = 1;
  } else if (!part.whole()) {
    int64_t below = 1;  // lines of one index of the cut dim
    for (int64_t d = part.dim + 1; d < last; ++d) below *= shape[static_cast<size_t>(d)];
    p.run = std::max<int64_t>(1, shape[static_cast<size_t>(part.dim)] * below);
    p.whole_run = part.size * below;
    p.lines_of_begin = below;
  }
  p.pitch = (whole_width + kRandomBlock - 1) / kRandomBlock * kRandomBlock;
  return p;
}

int64_t largest_unit(int64_t bytes, const void* x, const void* y) {
  const auto all = static_cast<uintptr_t>(bytes) | reinterpret_cast<uintptr_t>(x) |
                   reinterpret_cast<uintptr_t>(y) | 16u;
  return int64_t{1} << std::countr_zero(all);
}

Launch row_gather(Device& device, std::string name, const TensorType& table, const TensorType& ids,
                  size_t table_operand, size_t ids_operand, IdCheck check) {
  int64_t rows = table.shape[0], count = ids.elements();
  int64_t row_bytes = rows > 0 ? table.bytes() / rows : 0;
  std::array<Kernel, 5> kernels;
  for (size_t i = 0; i < kernels.size(); ++i)
    kernels[i] = find_kernel(device, cat("gather_", int64_t{1} << i));
  int32_t wide_ids = ids.dtype == DType::kI64;
  return {std::move(name), 0, [=, &device](const LaunchArguments& a) {
            check.run(a.inputs[ids_operand]);
            const void* from = a.inputs[table_operand];
            int64_t unit = largest_unit(row_bytes, from, a.outputs[0]), width = row_bytes / unit;
            launch_threads(
                device, kernels[static_cast<size_t>(std::countr_zero(static_cast<uint64_t>(unit)))],
                count * width, from, a.inputs[ids_operand], wide_ids, a.outputs[0], rows, width,
                count * width);
          }};
}

void register_movement_primitives(KernelTable& table, Device& device) {
  auto add_to_table = [&](std::string_view op, auto prepare) {
    table.add(op, [prepare, &device](const PrepareContext& context) -> Prepared {
      size_t dims = context.outputs[0].shape.size();
      if (dims > kMaxDims)
        return cat("cuda ", context.op.name(), " takes up to ", kMaxDims, " dims, not ", dims);
      return prepare(context, device);
    });
  };
  add_to_table("constant", prepare_constant);
  add_to_table("table", prepare_table);
  add_to_table("iota", prepare_iota);
  add_to_table("random_bits", prepare_random_bits);
  for (std::string_view op : {"offload", "fetch"}) add_to_table(op, prepare_transfer);
  add_to_table("transpose", prepare_transpose);
  add_to_table("broadcast", prepare_broadcast);
  add_to_table("slice", prepare_slice);
  add_to_table("pad", prepare_pad);
  add_to_table("concatenate", prepare_concatenate);
  add_to_table("gather", prepare_gather);
}

}  // namespace tessera::cuda
