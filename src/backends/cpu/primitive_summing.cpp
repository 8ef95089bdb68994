#include <algorithm>

#include "backends/cpu/element_types.h"
#include "backends/cpu/kernels/tiles.h"
#include "backends/cpu/primitive_kernels.h"
#include "backends/cpu/strided_walk.h"
#include "ops/primitive/reduction.h"
#include "ops/primitive/shaping.h"

namespace tessera::cpu {
namespace {

// Every result is accumulated by itself, in ascending order. Speed comes from advancing a block of
// neighbouring results together: many where they are neighbours in memory, few where they are
// strides apart, so that their cache lines do not push each other out.
constexpr int64_t kLanes = 256, kStridedLanes = 8;

// body(first, lanes) for blocks of a row of `count` results whose operands are `step` apart.
template <class Body>
void for_blocks(int64_t count, int64_t step, const Body& body) {
  int64_t block = step <= 1 ? kLanes : kStridedLanes;
  for (int64_t first = 0; first < count; first += block)
    body(first, std::min(block, count - first));
}

// The operand's dims that stay, in the order of the result, and those that disappear.
struct ReducePlan {
  StridedWalk<1> kept, reduced;
};

template <class T, class Combine>
void reduce_range(const ReducePlan& plan, const T* x, T* y, int64_t begin, int64_t end,
                  ComputeOf<T> initial, const Combine& combine) {
  int64_t step = plan.kept.row_step(0), reduced_step = plan.reduced.row_step(0);
  T* next = y + begin;
  plan.kept.for_rows(begin, end, [&](const auto& offsets, int64_t count) {
    for_blocks(count, step, [&](int64_t first, int64_t lanes) {
      ComputeOf<T> result[kLanes];
      std::fill_n(result, lanes, initial);
      const T* block = x + offsets[0] + first * step;
      plan.reduced.for_rows(
          0, plan.reduced.total(), [&](const auto& reduced_offsets, int64_t terms) {
            const T* row = block + reduced_offsets[0];
            for (int64_t i = 0; i < terms; ++i, row += reduced_step) {
              for (int64_t l = 0; l < lanes; ++l) {
                result[l] = combine(result[l], static_cast<ComputeOf<T>>(row[l * step]));
              }
            }
          });
      next = std::transform(result, result + lanes, next, [](auto r) { return static_cast<T>(r); });
    });
  });
}

template <class T>
Launch reduce_launch(const PrepareContext& context, const ReducePlan& plan, ComputeOf<T> initial,
                     auto combine, ThreadPool& pool) {
  return {launch_name(context), 0, [=, &pool](const LaunchArguments& arguments) {
            for_ranges(pool, plan.kept.total(), rows_per_tile(plan.reduced.total()),
                       [&](int64_t begin, int64_t end) {
                         reduce_range(plan, arguments.input<T>(0), arguments.output<T>(0), begin,
                                      end, initial, combine);
                       });
          }};
}

Prepared prepare_reduce(const PrepareContext& context, ThreadPool& pool) {
  const auto& reduce = static_cast<const Reduce&>(context.op);
  const Shape& shape = context.inputs[0].shape;
  std::vector<int64_t> strides = row_major_strides(shape);
  ReducePlan plan;
  for (size_t d = 0; d < shape.size(); ++d) {
    bool reduced = std::ranges::count(reduce.dims(), static_cast<int64_t>(d)) > 0;
    (reduced ? plan.reduced : plan.kept).add_dim(shape[d], {strides[d]});
  }
  return for_number(
      context, context.inputs[0].dtype, [&]<class T>(std::type_identity<T>) -> Prepared {
        using C = ComputeOf<T>;
        if (reduce.reduction() == Reduction::kSum) {
          if constexpr (FloatCompute<T>) {
            return reduce_launch<T>(
                context, plan, C{0}, [](C a, C b) { return a + b; }, pool);
          } else {
            using U = std::make_unsigned_t<C>;  // wraps around
            auto sum = [](C a, C b) {
              return static_cast<C>(static_cast<U>(a) + static_cast<U>(b));
            };
            return reduce_launch<T>(context, plan, C{0}, sum, pool);
          }
        }
        if constexpr (FloatCompute<T>) {
          auto max = [](C a, C b) { return a != a || b != b ? a + b : std::max(a, b); };
          return reduce_launch<T>(context, plan, -std::numeric_limits<C>::infinity(), max, pool);
        } else {
          return reduce_launch<T>(
              context, plan, std::numeric_limits<C>::lowest(),
              [](C a, C b) { return std::max(a, b); }, pool);
        }
      });
}

// Offsets of the rows and columns that meet in each element of the result, and how to go along
// them.
struct DotPlan {
  StridedWalk<2> result;
  int64_t terms = 0, step_a = 0, step_b = 0;
};

template <class In, class Out>
void dot_range(const DotPlan& plan, const In* a, const In* b, Out* y, int64_t begin, int64_t end) {
  using C = ComputeOf<In>;
  int64_t lane_a = plan.result.row_step(0), lane_b = plan.result.row_step(1);
  Out* next = y + begin;
  plan.result.for_rows(begin, end, [&](const auto& offsets, int64_t count) {
    for_blocks(count, std::max(lane_a, lane_b), [&](int64_t first, int64_t lanes) {
      C sum[kLanes];
      std::fill_n(sum, lanes, C{0});
      const In* p = a + offsets[0] + first * lane_a;
      const In* q = b + offsets[1] + first * lane_b;
      for (int64_t i = 0; i < plan.terms; ++i, p += plan.step_a, q += plan.step_b) {
        if (lane_a == 0 && lane_b == 1) {  // so that it becomes vector instructions
          auto factor = static_cast<C>(*p);
          for (int64_t l = 0; l < lanes; ++l) sum[l] += factor * static_cast<C>(q[l]);
        } else {
          for (int64_t l = 0; l < lanes; ++l) {
            sum[l] += static_cast<C>(p[l * lane_a]) * static_cast<C>(q[l * lane_b]);
          }
        }
      }
      next = std::transform(sum, sum + lanes, next, [](C s) { return static_cast<Out>(s); });
    });
  });
}

DotPlan plan_dot(const Dot& dot, const Shape& a, const Shape& b) {
  std::vector<int64_t> strides_a = row_major_strides(a), strides_b = row_major_strides(b);
  auto contract_a = static_cast<size_t>(dot.contract_a()),
       contract_b = static_cast<size_t>(dot.contract_b());
  auto batch = static_cast<size_t>(dot.batch());
  DotPlan plan{{}, a[contract_a], strides_a[contract_a], strides_b[contract_b]};
  for (size_t d = 0; d < a.size(); ++d) {
    if (d != contract_a) plan.result.add_dim(a[d], {strides_a[d], d < batch ? strides_b[d] : 0});
  }
  for (size_t d = batch; d < b.size(); ++d) {
    if (d != contract_b) plan.result.add_dim(b[d], {0, strides_b[d]});
  }
  return plan;
}

Prepared prepare_dot(const PrepareContext& context, ThreadPool& pool) {
  DotPlan plan = plan_dot(static_cast<const Dot&>(context.op), context.inputs[0].shape,
                          context.inputs[1].shape);
  return for_float(context, context.inputs[0].dtype, [&]<class In>(std::type_identity<In>) {
    return for_float(
        context, context.outputs[0].dtype, [&]<class Out>(std::type_identity<Out>) -> Prepared {
          return Launch{launch_name(context), 0, [plan, &pool](const LaunchArguments& arguments) {
                          for_ranges(pool, plan.result.total(), rows_per_tile(plan.terms),
                                     [&](int64_t begin, int64_t end) {
                                       dot_range(plan, arguments.input<In>(0),
                                                 arguments.input<In>(1), arguments.output<Out>(0),
                                                 begin, end);
                                     });
                        }};
        });
  });
}

// y[rows, width] and updates[count, width]. A tile owns a piece of y, at most kPiece elements, and
// looks through all ids for those that concern it: nothing is shared, and the order is that of the
// ids.
struct ScatterPlan {
  int64_t rows = 0, width = 0, count = 0;
};
constexpr int64_t kPiece = 4096;

template <class Id, class In, class Out>
void scatter_piece(const ScatterPlan& plan, const Id* ids, const In* updates, Out* y,
                   int64_t first_row, int64_t last_row, int64_t first_column, int64_t last_column) {
  using C = ComputeOf<Out>;
  C sum[kPiece];
  int64_t columns = last_column - first_column;
  std::fill_n(sum, (last_row - first_row) * columns, C{0});
  for (int64_t i = 0; i < plan.count; ++i) {
    if (ids[i] < first_row || ids[i] >= last_row) continue;
    C* target = sum + (ids[i] - first_row) * columns;
    const In* source = updates + i * plan.width + first_column;
    for (int64_t c = 0; c < columns; ++c) {
      if constexpr (FloatCompute<Out>) {
        target[c] += static_cast<C>(static_cast<ComputeOf<In>>(source[c]));
      } else {
        using U = std::make_unsigned_t<C>;  // wraps around
        target[c] = static_cast<C>(static_cast<U>(target[c]) + static_cast<U>(source[c]));
      }
    }
  }
  for (int64_t r = first_row; r < last_row; ++r) {
    std::transform(sum + (r - first_row) * columns, sum + (r - first_row + 1) * columns,
                   y + r * plan.width + first_column, [](C s) { return static_cast<Out>(s); });
  }
}

template <class Id, class In, class Out>
Launch scatter_launch(const PrepareContext& context, const ScatterPlan& plan, ThreadPool& pool) {
  return {launch_name(context), 0, [plan, &pool](const LaunchArguments& arguments) {
            auto ids = arguments.input<Id>(0);
            for (int64_t i = 0; i < plan.count; ++i) {
              TESSERA_CHECK(ids[i] >= 0 && ids[i] < plan.rows,
                            cat("scatter_add: id ", ids[i], " of ", plan.rows, " rows"));
            }
            if (plan.rows == 0 || plan.width == 0) return;
            int64_t columns = std::min(plan.width, kPiece), rows = kPiece / columns;
            int64_t pieces = ceil_div(plan.width, columns);
            for_ranges(pool, ceil_div(plan.rows, rows) * pieces, 1, [&](int64_t tile, int64_t) {
              int64_t row = tile / pieces * rows, column = tile % pieces * columns;
              scatter_piece(plan, ids, arguments.input<In>(1), arguments.output<Out>(0), row,
                            std::min(row + rows, plan.rows), column,
                            std::min(column + columns, plan.width));
            });
          }};
}

Prepared prepare_scatter_add(const PrepareContext& context, ThreadPool& pool) {
  const TensorType &ids = context.inputs[0], &updates = context.inputs[1], &y = context.outputs[0];
  ScatterPlan plan{y.shape[0], y.shape[0] > 0 ? y.elements() / y.shape[0] : 0, ids.elements()};
  return for_number(context, updates.dtype, [&]<class In>(std::type_identity<In>) {
    return for_number(context, y.dtype, [&]<class Out>(std::type_identity<Out>) -> Prepared {
      if constexpr (FloatCompute<In> == FloatCompute<Out>) {
        if (ids.dtype == DType::kI64) return scatter_launch<int64_t, In, Out>(context, plan, pool);
        return scatter_launch<int32_t, In, Out>(context, plan, pool);
      } else {
        return cat("portable scatter_add has no kernel for ", name(updates.dtype), " into ",
                   name(y.dtype));
      }
    });
  });
}

}  // namespace

void register_summing_primitives(KernelTable& table, ThreadPool& pool) {
  auto add_to_table = [&](std::string_view op, auto prepare) {
    table.add(op, [prepare, &pool](const PrepareContext& context) -> Prepared {
      size_t dims = context.outputs[0].shape.size();
      for (const TensorType& type : context.inputs) dims = std::max(dims, type.shape.size());
      if (dims > kMaxDims)
        return cat("portable ", context.op.name(), " takes up to ", kMaxDims, " dims, not ", dims);
      return prepare(context, pool);
    });
  };
  add_to_table("reduce_sum", prepare_reduce);
  add_to_table("reduce_max", prepare_reduce);
  add_to_table("dot", prepare_dot);
  add_to_table("scatter_add", prepare_scatter_add);
}

}  // namespace tessera::cpu
