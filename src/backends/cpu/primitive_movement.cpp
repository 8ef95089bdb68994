#include <algorithm>
#include <cstring>

#include "backends/cpu/element_types.h"
#include "backends/cpu/kernels/tiles.h"
#include "backends/cpu/primitive_kernels.h"
#include "backends/cpu/strided_walk.h"
#include "base/random.h"
#include "ops/primitive/random.h"
#include "ops/primitive/shaping.h"

namespace tessera::cpu {
namespace {

// Elements of a box copied from one tensor to another: a walk of offsets in the source (0) and in
// the destination (1), and where each begins.
struct BoxCopy {
  StridedWalk<2> walk;
  int64_t from = 0, to = 0;
};

BoxCopy box_copy(const Shape& box, const std::vector<int64_t>& from_strides,
                 const std::vector<int64_t>& to_strides, int64_t from, int64_t to) {
  BoxCopy copy{{}, from, to};
  for (size_t d = 0; d < box.size(); ++d)
    copy.walk.add_dim(box[d], {from_strides[d], to_strides[d]});
  return copy;
}

template <class T>
void run_copy(const BoxCopy& copy, const T* x, T* y, ThreadPool& pool) {
  int64_t from_step = copy.walk.row_step(0), to_step = copy.walk.row_step(1);
  for_ranges(pool, copy.walk.total(), kTileElements, [&](int64_t begin, int64_t end) {
    copy.walk.for_rows(begin, end, [&](const auto& offsets, int64_t count) {
      const T* source = x + copy.from + offsets[0];
      T* target = y + copy.to + offsets[1];
      if (to_step == 1 && from_step == 1) {
        std::copy_n(source, count, target);
      } else if (to_step == 1 && from_step == 0) {
        std::fill_n(target, count, *source);
      } else {
        for (int64_t i = 0; i < count; ++i) target[i * to_step] = source[i * from_step];
      }
    });
  });
}

// The one operand copied into the whole result, with the given strides in the operand for each dim
// of the result.
Prepared copy_launch(const PrepareContext& context, const std::vector<int64_t>& from_strides,
                     int64_t from, ThreadPool& pool) {
  const Shape& shape = context.outputs[0].shape;
  BoxCopy copy = box_copy(shape, from_strides, row_major_strides(shape), from, 0);
  return for_bits(context.outputs[0].dtype, [&]<class T>(std::type_identity<T>) -> Prepared {
    return Launch{launch_name(context), 0, [copy, &pool](const LaunchArguments& arguments) {
                    run_copy(copy, arguments.input<T>(0), arguments.output<T>(0), pool);
                  }};
  });
}

// offload and fetch: the far tier of the CPU is ordinary memory.
Prepared prepare_transfer(const PrepareContext& context, ThreadPool& pool) {
  return copy_launch(context, row_major_strides(context.inputs[0].shape), 0, pool);
}

Prepared prepare_transpose(const PrepareContext& context, ThreadPool& pool) {
  std::vector<int64_t> strides = row_major_strides(context.inputs[0].shape), steps;
  for (int64_t d : static_cast<const Transpose&>(context.op).order()) {
    steps.push_back(strides[static_cast<size_t>(d)]);
  }
  return copy_launch(context, steps, 0, pool);
}

Prepared prepare_broadcast(const PrepareContext& context, ThreadPool& pool) {
  std::vector<int64_t> strides = row_major_strides(context.inputs[0].shape);
  std::vector<int64_t> steps(context.outputs[0].shape.size(), 0);
  const auto& dims = static_cast<const Broadcast&>(context.op).dims();
  for (size_t i = 0; i < dims.size(); ++i) steps[static_cast<size_t>(dims[i])] = strides[i];
  return copy_launch(context, steps, 0, pool);
}

Prepared prepare_slice(const PrepareContext& context, ThreadPool& pool) {
  const auto& slice = static_cast<const Slice&>(context.op);
  std::vector<int64_t> strides = row_major_strides(context.inputs[0].shape);
  return copy_launch(context, strides, slice.begin() * strides[static_cast<size_t>(slice.dim())],
                     pool);
}

// The copy of a tensor of shape `x` to position `begin` along `dim` of a tensor of shape `y`.
BoxCopy placement(const Shape& x, const Shape& y, int64_t dim, int64_t begin) {
  std::vector<int64_t> to_strides = row_major_strides(y);
  return box_copy(x, row_major_strides(x), to_strides, 0,
                  begin * to_strides[static_cast<size_t>(dim)]);
}

// The copy of one number to `count` positions from `begin` along `dim` of a tensor of shape `y`.
BoxCopy filling(const Shape& y, int64_t dim, int64_t begin, int64_t count) {
  Shape box = y;
  box[static_cast<size_t>(dim)] = count;
  std::vector<int64_t> strides = row_major_strides(y);
  return box_copy(box, std::vector<int64_t>(y.size(), 0), strides, 0,
                  begin * strides[static_cast<size_t>(dim)]);
}

Prepared prepare_concatenate(const PrepareContext& context, ThreadPool& pool) {
  int64_t dim = static_cast<const Concatenate&>(context.op).dim(), begin = 0;
  std::vector<BoxCopy> copies;
  for (const TensorType& x : context.inputs) {
    copies.push_back(placement(x.shape, context.outputs[0].shape, dim, begin));
    begin += x.shape[static_cast<size_t>(dim)];
  }
  return for_bits(context.outputs[0].dtype, [&]<class T>(std::type_identity<T>) -> Prepared {
    return Launch{launch_name(context), 0, [copies, &pool](const LaunchArguments& arguments) {
                    for (size_t i = 0; i < copies.size(); ++i) {
                      run_copy(copies[i], arguments.input<T>(i), arguments.output<T>(0), pool);
                    }
                  }};
  });
}

Prepared prepare_pad(const PrepareContext& context, ThreadPool& pool) {
  const auto& pad = static_cast<const Pad&>(context.op);
  const Shape &x = context.inputs[0].shape, &y = context.outputs[0].shape;
  auto dim = static_cast<size_t>(pad.dim());
  int64_t after = pad.low() + x[dim];
  BoxCopy copy = placement(x, y, pad.dim(), pad.low());
  BoxCopy low = filling(y, pad.dim(), 0, pad.low()),
          high = filling(y, pad.dim(), after, y[dim] - after);
  return for_element(
      context, context.outputs[0].dtype, [&]<class T>(std::type_identity<T>) -> Prepared {
        T value = convert_element<T>(pad.value());
        return Launch{launch_name(context), 0, [=, &pool](const LaunchArguments& arguments) {
                        run_copy(copy, arguments.input<T>(0), arguments.output<T>(0), pool);
                        run_copy(low, &value, arguments.output<T>(0), pool);
                        run_copy(high, &value, arguments.output<T>(0), pool);
                      }};
      });
}

Prepared prepare_constant(const PrepareContext& context, ThreadPool& pool) {
  int64_t n = context.outputs[0].elements();
  return for_element(
      context, context.outputs[0].dtype, [&]<class T>(std::type_identity<T>) -> Prepared {
        T value = convert_element<T>(static_cast<const Constant&>(context.op).value());
        return Launch{launch_name(context), 0, [n, value, &pool](const LaunchArguments& arguments) {
                        auto y = arguments.output<T>(0);
                        for_ranges(pool, n, kTileElements, [&](int64_t begin, int64_t end) {
                          std::fill(y + begin, y + end, value);
                        });
                      }};
      });
}

Prepared prepare_table(const PrepareContext& context, ThreadPool&) {
  return for_element(
      context, context.outputs[0].dtype, [&]<class T>(std::type_identity<T>) -> Prepared {
        std::vector<T> values;
        for (double v : static_cast<const Table&>(context.op).values())
          values.push_back(convert_element<T>(v));
        return Launch{launch_name(context), 0, [values](const LaunchArguments& arguments) {
                        std::copy(values.begin(), values.end(), arguments.output<T>(0));
                      }};
      });
}

Prepared prepare_iota(const PrepareContext& context, ThreadPool& pool) {
  const Shape& shape = context.outputs[0].shape;
  auto dim = static_cast<size_t>(static_cast<const Iota&>(context.op).dim());
  int64_t n = context.outputs[0].elements(), size = shape[dim],
          repeat = row_major_strides(shape)[dim];
  return for_element(
      context, context.outputs[0].dtype, [&]<class T>(std::type_identity<T>) -> Prepared {
        return Launch{launch_name(context), 0, [=, &pool](const LaunchArguments& arguments) {
                        auto y = arguments.output<T>(0);
                        for_ranges(pool, n, kTileElements, [&](int64_t begin, int64_t end) {
                          while (begin < end) {
                            int64_t run = begin / repeat, next = std::min((run + 1) * repeat, end);
                            std::fill(y + begin, y + next, convert_element<T>(run % size));
                            begin = next;
                          }
                        });
                      }};
      });
}

Prepared prepare_random_bits(const PrepareContext& context, ThreadPool& pool) {
  const auto& op = static_cast<const RandomBits&>(context.op);
  uint64_t stream = stream_of(op.stream());
  return Launch{launch_name(context), 0,
                [shape = context.outputs[0].shape, part = op.part(), stream,
                 &pool](const LaunchArguments& arguments) {
                  auto keys = arguments.input<int64_t>(0);
                  auto y = arguments.output<int32_t>(0);
                  RandomLines lines(shape, part, part.whole() ? 0 : *arguments.input<int32_t>(1));
                  for_ranges(pool, shape[0] * lines.lines(), rows_per_tile(lines.width()),
                             [&](int64_t begin, int64_t end) {
                               for (int64_t line = begin; line < end; ++line) {
                                 auto key = static_cast<uint64_t>(keys[line / lines.lines()]);
                                 int64_t first = lines.line_begin(line % lines.lines());
                                 for (int64_t i = 0; i < lines.width(); ++i)
                                   y[line * lines.width() + i] = static_cast<int32_t>(random_bits16(
                                       key, stream, static_cast<uint64_t>(first + i)));
                               }
                             });
                }};
}

Prepared prepare_gather(const PrepareContext& context, ThreadPool& pool) {
  const TensorType &table_type = context.inputs[0], &ids_type = context.inputs[1];
  int64_t rows = table_type.shape[0], count = ids_type.elements();
  int64_t row_bytes = (rows > 0 ? table_type.elements() / rows : 0) * size_of(table_type.dtype);
  auto prepare = [&]<class Id>(std::type_identity<Id>) -> Prepared {
    return Launch{
        launch_name(context), 0, [=, &pool](const LaunchArguments& arguments) {
          auto table = arguments.input<char>(0);
          auto ids = arguments.input<Id>(1);
          auto y = arguments.output<char>(0);
          for_ranges(pool, count, rows_per_tile(row_bytes), [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
              int64_t id = ids[i];
              TESSERA_CHECK(id >= 0 && id < rows, cat("gather: id ", id, " of ", rows, " rows"));
              std::memcpy(y + i * row_bytes, table + id * row_bytes,
                          static_cast<size_t>(row_bytes));
            }
          });
        }};
  };
  return ids_type.dtype == DType::kI64 ? prepare(std::type_identity<int64_t>{})
                                       : prepare(std::type_identity<int32_t>{});
}

}  // namespace

void register_movement_primitives(KernelTable& table, ThreadPool& pool) {
  auto add_to_table = [&](std::string_view op, auto prepare) {
    table.add(op, [prepare, &pool](const PrepareContext& context) -> Prepared {
      size_t dims = context.outputs[0].shape.size();
      if (dims > kMaxDims)
        return cat("portable ", context.op.name(), " takes up to ", kMaxDims, " dims, not ", dims);
      return prepare(context, pool);
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

}  // namespace tessera::cpu
