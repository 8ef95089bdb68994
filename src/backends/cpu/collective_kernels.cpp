#include <algorithm>
#include <cstring>
#include <map>

#include "backends/cpu/cpu_kernels.h"
#include "ir/marks.h"
#include "ops/collective/collective.h"

namespace tessera::cpu {
namespace {

class Collectives : public std::enable_shared_from_this<Collectives> {
 public:
  explicit Collectives(Communicator* communicator) : communicator_(communicator) {}

  int rank() const { return communicator_ ? communicator_->rank() : 0; }

  // A call that begins when the launch runs. `call` lacks the group, the addresses and the label.
  Launch launch(CommCall call, AxisSet axes, const PrepareContext& context) {
    struct Pending {
      Collectives& owner;
      CommCall call;
      std::string label;
      Communicator::Ticket ticket = 0;
      TimeSpan ran = {};
    };
    call.dtype = context.inputs[0].dtype;
    call.output_dtype = context.outputs[0].dtype;
    call.group = group(axes, context.mesh);
    auto pending = std::make_shared<Pending>(Pending{*this, call, context.label});
    pending->call.label = pending->label;
    pending->call.ran = &pending->ran;
    Launch launch;
    launch.kernel = cat(context.op.name(), " of ", context.mesh.size(axes), " ranks");
    launch.run = [pending, keep = shared_from_this()](const LaunchArguments& a) {
      Communicator& communicator = require_communicator(pending->owner.communicator_);
      CommCall now = pending->call;
      now.input = a.inputs[0];
      now.output = a.outputs[0];
      pending->ticket = communicator.start(now);
    };
    launch.finish = [pending] { pending->owner.communicator_->wait(pending->ticket); };
    launch.exchanged = {pending, &pending->ran};
    return launch;
  }

 private:
  const CommGroup* group(AxisSet axes, const Mesh& mesh) {
    if (!communicator_) return nullptr;
    const CommGroup*& made = groups_[axes.bits];
    if (made) return made;
    require_ranks(mesh, communicator_->world_size());
    for (const std::vector<int>& ranks : mesh.groups(axes)) {
      if (std::find(ranks.begin(), ranks.end(), rank()) != ranks.end())
        return made = &communicator_->make_group(ranks, mesh.to_string(axes));
    }
    throw InternalError("a rank without a group");
  }

  Communicator* communicator_;
  std::map<uint32_t, const CommGroup*> groups_;
};

Launch prepare_local_slice(const PrepareContext& context, int rank) {
  const auto& op = static_cast<const Collective&>(context.op);
  int64_t ranks = context.mesh.size(op.axes()), index = context.mesh.index(rank, op.axes());
  Cut cut(context.inputs[0].shape, op.dim());
  auto row = static_cast<size_t>(cut.size / ranks * cut.inner * size_of(context.inputs[0].dtype));
  Launch launch;
  launch.kernel = "local_slice";
  launch.run = [cut, row, ranks, index](const LaunchArguments& a) {
    for (int64_t o = 0; o < cut.outer; ++o) {
      std::memcpy(a.output<std::byte>(0) + static_cast<size_t>(o) * row,
                  a.input<std::byte>(0) + static_cast<size_t>(o * ranks + index) * row, row);
    }
  };
  return launch;
}

}  // namespace

void register_collective_kernels(KernelTable& table, Communicator* communicator) {
  auto collectives = std::make_shared<Collectives>(communicator);
  table.add("axis_index", [collectives](const PrepareContext& c) -> Prepared {
    int index = c.mesh.index(collectives->rank(), static_cast<const AxisIndex&>(c.op).axes());
    Launch launch;
    launch.kernel = "axis_index";
    launch.run = [index](const LaunchArguments& a) { *a.output<int32_t>(0) = index; };
    return launch;
  });
  table.add("all_reduce", [collectives](const PrepareContext& c) -> Prepared {
    const auto& op = static_cast<const AllReduceOp&>(c.op);
    CommCall call;
    call.action = CommAction::kAllReduce;
    call.reduction = op.reduction();
    call.inner = c.inputs[0].elements();
    return collectives->launch(call, op.axes(), c);
  });
  for (const char* name : {"all_gather", "gather_replicated", "reduce_scatter"}) {
    table.add(name, [collectives](const PrepareContext& c) -> Prepared {
      const auto& op = static_cast<const Collective&>(c.op);
      bool reduces = op.kind() == CollectiveKind::kReduceScatter;
      // The smaller of the two tensors is one rank's part.
      Cut part(reduces ? c.outputs[0].shape : c.inputs[0].shape, op.dim());
      CommCall call;
      call.action = reduces ? CommAction::kReduceScatter : CommAction::kAllGather;
      call.outer = part.outer;
      call.inner = part.size * part.inner;
      return collectives->launch(call, op.axes(), c);
    });
  }
  table.add("all_to_all", [collectives](const PrepareContext& c) -> Prepared {
    const auto& op = static_cast<const Collective&>(c.op);
    if (op.dim() != 0 || op.concat_dim() != 0) return std::string("exchanges rows of dim 0 only");
    CommCall call;
    call.action = CommAction::kAllToAll;
    call.inner = c.inputs[0].elements() / c.mesh.size(op.axes());
    return collectives->launch(call, op.axes(), c);
  });
  table.add("local_slice", [collectives](const PrepareContext& c) -> Prepared {
    return prepare_local_slice(c, collectives->rank());
  });
}

}  // namespace tessera::cpu
