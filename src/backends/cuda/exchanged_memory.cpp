#include "backends/cuda/exchanged_memory.h"

#include <algorithm>

#include "base/hash.h"

namespace tessera::cuda {

std::vector<ExchangedMemory> exchanged_memory(const PlannedProgram& program, const CudaState& state,
                                              const CudaArenas& arenas) {
  const Plan& plan = program.plan;
  std::vector<ExchangedMemory> exchanges;
  for (const Instruction& instruction : plan.instructions) {
    if (instruction.kind != InstructionKind::kLaunch) continue;
    const auto index = static_cast<size_t>(instruction.node);
    const Node& node = program.graph.nodes()[index];
    const auto communication = node.op->communication();
    if (!communication) continue;
    ExchangedMemory exchange{communication->axes, instruction.lane};
    exchange.sums = communication->traffic == Traffic::kAllReduce ||
                    communication->traffic == Traffic::kReduceScatter;
    const auto add = [&](int32_t number, int64_t offset) {
      if (number < 0) return;
      const Storage& storage = plan.storages[static_cast<size_t>(number)];
      const int64_t begin = storage.external ? 0 : storage.arena_offset;
      exchange.place = hash_combine(exchange.place, hash_text(storage.external_name));
      exchange.place = hash_combine(exchange.place, static_cast<uint64_t>(begin + offset));
      const DeviceBlock* block = storage.external ? state.near_block(storage.external_name)
                                 : storage.tier == MemoryTier::kNear ? &arenas.near()
                                                                     : nullptr;
      if (!block || !block->data()) return;
      if (std::find(exchange.blocks.begin(), exchange.blocks.end(), block) == exchange.blocks.end())
        exchange.blocks.push_back(block);
    };
    const auto add_values = [&](const std::vector<Value>& values) {
      for (Value v : values) {
        const Place& place = plan.places[static_cast<size_t>(v.id)];
        add(place.storage, place.offset);
      }
    };
    add_values(node.inputs);
    add(plan.workspaces[index], 0);
    exchange.read = exchange.blocks.size();
    add_values(node.outputs);
    exchanges.push_back(std::move(exchange));
  }
  return exchanges;
}

void make_known(const PlannedProgram& program, const std::vector<ExchangedMemory>& exchanges,
                NcclCommunicator& communicator) {
  std::vector<NcclCommunicator::MemoryUse> uses;
  PeerMemory* peers = communicator.peers();
  std::vector<PeerMemory::Use> read_by_peers;
  uint64_t layout = 0;
  for (const ExchangedMemory& exchange : exchanges) {
    const auto& group = communicator.make_group(program.graph.mesh().groups(exchange.axes));
    ncclComm* comm = NcclCommunicator::comm_of(group, exchange.lane);
    for (const DeviceBlock* block : exchange.blocks)
      uses.push_back({comm, block->data(), block->bytes()});
    if (!peers || !exchange.sums) continue;
    uses.push_back({comm, communicator.fences().data(), communicator.fences().bytes()});
    for (size_t i = 0; i < exchange.read; ++i)
      read_by_peers.push_back(
          {group.ranks, exchange.blocks[i]->data(), exchange.blocks[i]->bytes()});
    layout = hash_combine(layout, exchange.place);
  }
  std::sort(uses.begin(), uses.end());
  uses.erase(std::unique(uses.begin(), uses.end()), uses.end());
  communicator.register_memory(uses);
  if (peers) peers->share(read_by_peers, layout);
}

}  // namespace tessera::cuda
