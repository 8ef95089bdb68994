#include "backends/cuda/collective_kernels.h"

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "backends/cuda/kernel_launch.h"
#include "backends/cuda/rank_order_sums.h"
#include "base/error.h"
#include "base/text.h"
#include "ops/collective/collective.h"
#include "ops/primitive/elementwise.h"
#include "ops/primitive/shaping.h"

namespace tessera::cuda {
namespace {

using Group = NcclCommunicator::Group;

// What is done to one tensor, step by step; what lies between two steps is in workspace.
class Chain {
 public:
  Chain(const KernelTable& table, const Mesh& mesh, TensorType input)
      : table_(table), mesh_(mesh), type_(std::move(input)) {}
  const TensorType& type() const { return type_; }

  using Run = std::function<void(const void* from, void* to)>;
  void add(TensorType output, Run run) {
    type_ = std::move(output);
    auto without_scratch = [run = std::move(run)](const void* from, void* to, void*) {
      run(from, to);
    };
    steps_.push_back({std::move(without_scratch), 0, type_.bytes()});
  }
  using RunWithScratch = std::function<void(const void* from, void* to, void* scratch)>;
  void add(TensorType output, int64_t scratch_bytes, RunWithScratch run) {
    type_ = std::move(output);
    steps_.push_back({std::move(run), scratch_bytes, type_.bytes()});
  }
  // A primitive of one operand, or of none.
  template <class Primitive>
  void add_op(std::shared_ptr<const Primitive> op) {
    std::vector<TensorType> inputs;
    if (op->arity() != 0) inputs.push_back(type_);
    std::vector<TensorType> outputs = op->infer({inputs, mesh_});
    Prepared prepared = table_.prepare({*op, inputs, outputs, mesh_});
    auto* launch = std::get_if<Launch>(&prepared);
    if (!launch) throw InternalError(cat("an exchange needs ", std::get<std::string>(prepared)));
    const bool has_input = !inputs.empty();
    type_ = outputs[0];
    auto run = [op, run = launch->run, has_input](const void* from, void* to, void* scratch) {
      const void* const ins[] = {from};
      void* const outs[] = {to};
      run({std::span(ins, has_input ? 1 : 0), outs, scratch});
    };
    steps_.push_back({std::move(run), launch->workspace_bytes, type_.bytes()});
  }
  // To f32, or from it.
  void convert(DType to) {
    if (type_.dtype != to) add_op(std::make_shared<const Convert>(to));
  }

  Launch launch(std::string kernel) && {
    Launch made;
    made.kernel = std::move(kernel);
    std::vector<int64_t> places;
    for (const Step& step : steps_) {
      places.push_back(made.workspace_bytes);
      made.workspace_bytes += aligned_bytes(step.scratch);
      if (&step != &steps_.back()) made.workspace_bytes += aligned_bytes(step.bytes);
    }
    made.run = [steps = std::move(steps_), places](const LaunchArguments& a) {
      const void* from = a.inputs.empty() ? nullptr : a.inputs[0];
      for (size_t i = 0; i < steps.size(); ++i) {
        std::byte* scratch = static_cast<std::byte*>(a.workspace) + places[i];
        void* to = i + 1 < steps.size()
                       ? static_cast<void*>(scratch + aligned_bytes(steps[i].scratch))
                       : a.outputs[0];
        steps[i].run(from, to, scratch);
        from = to;
      }
    };
    return made;
  }

 private:
  struct Step {
    RunWithScratch run;
    int64_t scratch, bytes;
  };
  const KernelTable& table_;
  const Mesh& mesh_;
  TensorType type_;
  std::vector<Step> steps_;
};

class Collectives {
 public:
  Collectives(const KernelTable& table, Device& device, NcclCommunicator* communicator,
              SumOrder order)
      : table_(table), communicator_(communicator) {
    if (order == SumOrder::kRanks) in_rank_order_.emplace(device, communicator);
  }

  int rank() const { return communicator_ ? communicator_->rank() : 0; }
  Chain chain(const PrepareContext& c) const { return {table_, c.mesh, c.inputs[0]}; }

  // nullptr where programs are planned only.
  const Group* group(AxisSet axes, const Mesh& mesh) {
    if (!communicator_) return nullptr;
    const Group*& made = groups_[axes.bits];
    if (made) return made;
    require_ranks(mesh, communicator_->world_size());
    return made = &communicator_->make_group(mesh.groups(axes));
  }
  NcclCommunicator& communicator() const { return require_communicator(communicator_); }

  Launch all_reduce(const PrepareContext& c) {
    const auto& op = static_cast<const AllReduceOp&>(c.op);
    const Group* ranks = group(op.axes(), c.mesh);
    Chain steps = chain(c);
    if (in_rank_order_) {
      const int64_t count = c.inputs[0].elements();
      steps.add(c.outputs[0],
                in_rank_order_->all_reduce_bytes(c.mesh.size(op.axes()), count, c.inputs[0].dtype),
                [this, ranks, count, sum = ordered(c, op.reduction())](const void* from, void* to,
                                                                       void* scratch) {
                  static_cast<void>(communicator());
                  in_rank_order_->all_reduce(*ranks, sum, from, to, count, scratch);
                });
      return std::move(steps).launch(kernel(c, op.axes()));
    }
    if (op.reduction() == Reduction::kSum) widen(steps);
    steps.add(steps.type(), [this, ranks, type = steps.type(), reduction = op.reduction(),
                             label = c.label](const void* from, void* to) {
      communicator().all_reduce(*ranks, from, to, type.elements(), type.dtype, reduction, label);
    });
    steps.convert(c.outputs[0].dtype);
    return std::move(steps).launch(kernel(c, op.axes()));
  }

  Launch gather(const PrepareContext& c) {
    const auto& op = static_cast<const Collective&>(c.op);
    const Group* ranks = group(op.axes(), c.mesh);
    const int64_t n = c.mesh.size(op.axes());
    const Cut part(c.inputs[0].shape, op.dim());
    const int64_t row = part.size * part.inner;
    Chain steps = chain(c);
    steps.add({{n, part.outer, row}, c.inputs[0].dtype},
              [this, ranks, count = part.outer * row, dtype = c.inputs[0].dtype, label = c.label](
                  const void* from, void* to) {
                communicator().all_gather(*ranks, from, to, count, dtype, label);
              });
    // Parts come one after another; they belong beside each other in every row.
    if (part.outer > 1)
      steps.add_op(std::make_shared<const Transpose>(std::vector<int64_t>{1, 0, 2}));
    return std::move(steps).launch(kernel(c, op.axes()));
  }

  Launch reduce_scatter(const PrepareContext& c) {
    const auto& op = static_cast<const Collective&>(c.op);
    const Group* ranks = group(op.axes(), c.mesh);
    const int64_t n = c.mesh.size(op.axes());
    const Cut part(c.outputs[0].shape, op.dim());
    const int64_t row = part.size * part.inner;
    Chain steps(table_, c.mesh, {{part.outer, n, row}, c.inputs[0].dtype});
    if (in_rank_order_) {
      if (part.outer > 1)
        steps.add_op(std::make_shared<const Transpose>(std::vector<int64_t>{1, 0, 2}));
      const int64_t count = part.outer * row;
      steps.add(c.outputs[0], in_rank_order_->reduce_scatter_bytes(n, count, c.inputs[0].dtype),
                [this, ranks, count, sum = ordered(c, Reduction::kSum)](const void* from, void* to,
                                                                        void* scratch) {
                  static_cast<void>(communicator());
                  in_rank_order_->reduce_scatter(*ranks, sum, from, to, count, scratch);
                });
      return std::move(steps).launch(kernel(c, op.axes()));
    }
    widen(steps);
    if (part.outer > 1)
      steps.add_op(std::make_shared<const Transpose>(std::vector<int64_t>{1, 0, 2}));
    steps.add({{part.outer, row}, steps.type().dtype},
              [this, ranks, count = part.outer * row, dtype = steps.type().dtype, label = c.label](
                  const void* from, void* to) {
                communicator().reduce_scatter(*ranks, from, to, count, dtype, label);
              });
    steps.convert(c.outputs[0].dtype);
    return std::move(steps).launch(kernel(c, op.axes()));
  }

  Launch all_to_all(const PrepareContext& c) {
    const auto& op = static_cast<const Collective&>(c.op);
    const Group* ranks = group(op.axes(), c.mesh);
    Chain steps = chain(c);
    steps.add(c.outputs[0],
              [this, ranks, count = c.inputs[0].elements() / c.mesh.size(op.axes()),
               dtype = c.inputs[0].dtype, label = c.label](const void* from, void* to) {
                communicator().all_to_all(*ranks, from, to, count, dtype, label);
              });
    return std::move(steps).launch(kernel(c, op.axes()));
  }

  Launch local_slice(const PrepareContext& c) const {
    const auto& op = static_cast<const Collective&>(c.op);
    const int64_t index = c.mesh.index(rank(), op.axes());
    const int64_t count = c.outputs[0].shape[static_cast<size_t>(op.dim())];
    Chain steps = chain(c);
    steps.add_op(std::make_shared<const Slice>(op.dim(), index * count, (index + 1) * count));
    return std::move(steps).launch("local_slice");
  }

  Launch axis_index(const PrepareContext& c) const {
    const int index = c.mesh.index(rank(), static_cast<const AxisIndex&>(c.op).axes());
    Chain steps(table_, c.mesh, {});
    steps.add_op(
        std::make_shared<const Constant>(TensorType{{}, DType::kI32}, static_cast<double>(index)));
    return std::move(steps).launch("axis_index");
  }

 private:
  static void widen(Chain& steps) {
    if (steps.type().dtype == DType::kBF16 || steps.type().dtype == DType::kF16)
      steps.convert(DType::kF32);
  }
  std::string kernel(const PrepareContext& c, AxisSet axes) const {
    const bool sums = c.op.name() == "all_reduce" || c.op.name() == "reduce_scatter";
    return cat(c.op.name(), " of ", c.mesh.size(axes), " ranks",
               in_rank_order_ && sums ? ", in rank order" : "");
  }
  static RankOrderSums::Sum ordered(const PrepareContext& c, Reduction reduction) {
    return {reduction, c.inputs[0].dtype, c.outputs[0].dtype, c.label};
  }

  const KernelTable& table_;
  NcclCommunicator* communicator_;
  std::optional<RankOrderSums> in_rank_order_;
  std::map<uint32_t, const Group*> groups_;
};

}  // namespace

void register_collective_kernels(KernelTable& table, Device& device, NcclCommunicator* communicator,
                                 SumOrder order) {
  auto collectives = std::make_shared<Collectives>(table, device, communicator, order);
  using Make = Launch (*)(Collectives&, const PrepareContext&);
  auto add = [&](const char* name, Make make) {
    table.add(name, [collectives, make](const PrepareContext& c) { return make(*collectives, c); });
  };
  add("all_reduce", [](Collectives& all, const PrepareContext& c) { return all.all_reduce(c); });
  for (const char* name : {"all_gather", "gather_replicated"})
    add(name, [](Collectives& all, const PrepareContext& c) { return all.gather(c); });
  add("reduce_scatter",
      [](Collectives& all, const PrepareContext& c) { return all.reduce_scatter(c); });
  add("local_slice", [](Collectives& all, const PrepareContext& c) { return all.local_slice(c); });
  add("axis_index", [](Collectives& all, const PrepareContext& c) { return all.axis_index(c); });
  table.add("all_to_all", [collectives](const PrepareContext& c) -> Prepared {
    const auto& op = static_cast<const Collective&>(c.op);
    if (op.dim() != 0 || op.concat_dim() != 0) return std::string("exchanges rows of dim 0 only");
    return collectives->all_to_all(c);
  });
}

}  // namespace tessera::cuda
