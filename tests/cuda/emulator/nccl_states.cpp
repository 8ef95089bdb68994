// What has become of a communicator of the double of NCCL, and its end.
#include "faults.h"
#include "nccl_communicators.h"
#include "nccl_exports.h"

namespace tessera::emulated_gpu {
namespace {

// A graph that holds calls of a communicator keeps it from its end.
bool is_in_graphs(int communicator) {
  return machine().any_graph(
      [=](const Captured& graph) { return graph.communicators.contains(communicator); });
}

// As NCCL before 2.22, whatever group it is called in: behind all that the communicator has
// launched and all graphs with calls of it, for ever if it must.
void wait_for_own_work(int number) {
  Machine& m = machine();
  const auto works = [&] {
    return m.unfinished.contains(communicators()[static_cast<size_t>(number)].last_operation) ||
           is_in_graphs(number);
  };
  while (works()) {
    if (!m.run_one()) m.wait_for_others();
  }
}

// A split of a communicator that does not block is done when somebody asks for that one's state.
void finish_split(Communicator& c) {
  if (!c.splitting || !communicators()[static_cast<size_t>(c.splitting->number)].ready()) return;
  *c.splitting->made = make_handle<ncclComm*>(Handle::kCommunicator, c.splitting->number);
  c.splitting.reset();
}

// A process stays until the others have taken what it has given.
bool all_have_ended(const Communicator& c) {
  const Clique& clique = *c.clique;
  if (!clique.spans_processes) return true;
  constexpr const char* kEnded = "ended";
  if (!clique.files->has(kEnded, c.rank)) {
    if (machine().unfinished.contains(c.last_operation)) return false;
    clique.files->put(kEnded, c.rank, std::string());
  }
  for (int rank = 0; rank < static_cast<int>(clique.communicators.size()); ++rank) {
    if (!clique.files->has(kEnded, rank)) return false;
  }
  return true;
}

}  // namespace
}  // namespace tessera::emulated_gpu

using namespace tessera::emulated_gpu;

extern "C" {

ncclResult ncclCommGetAsyncError(ncclComm* comm, ncclResult* error) {
  const std::lock_guard lock(machine().mutex);
  Communicator* c = communicator_of(comm, __func__, false);
  if (!c) return kNcclInvalidArgument;
  finish_split(*c);
  *error = c->error ? c->error : c->ready() && !c->splitting ? kNcclSuccess : kNcclInProgress;
  if (c->under_way > 0 && *error == kNcclSuccess) {
    c->under_way--;
    *error = kNcclInProgress;
  }
  if (c->clique && c->clique->error) *error = c->clique->error;
  // Ending waits for the work that is under way, and for graphs.
  if (c->finalized && !c->error) {
    machine().run_some(2);
    if (machine().unfinished.contains(c->last_operation) ||
        is_in_graphs(number_of(Handle::kCommunicator, comm)) || !all_have_ended(*c)) {
      *error = kNcclInProgress;
    }
  }
  return kNcclSuccess;
}
ncclResult ncclCommFinalize(ncclComm* comm) {
  const std::lock_guard lock(machine().mutex);
  Communicator* c = communicator_of(comm, __func__, true);
  if (!c) return kNcclInvalidArgument;
  c->finalized = true;
  const bool ended = !machine().unfinished.contains(c->last_operation) &&
                     !is_in_graphs(number_of(Handle::kCommunicator, comm)) && all_have_ended(*c);
  return ended ? kNcclSuccess : kNcclInProgress;
}
ncclResult ncclCommDestroy(ncclComm* comm) {
  const std::lock_guard lock(machine().mutex);
  Communicator* c = communicator_of(comm, __func__, false);
  if (!c) return kNcclInvalidArgument;
  if (machine().unfinished.contains(c->last_operation)) {
    found("NCCL: a communicator is destroyed while its work is under way");
  }
  if (drop_registrations(number_of(Handle::kCommunicator, comm)) > 0) {
    found("NCCL: a communicator is destroyed while memory is registered with it");
  }
  c->destroyed = true;
  return kNcclSuccess;
}
ncclResult ncclCommAbort(ncclComm* comm) {
  const std::lock_guard lock(machine().mutex);
  Communicator* c =
      object_of(Handle::kCommunicator, communicators(), comm, __func__, "communicator");
  if (!c) return kNcclInvalidArgument;
  const int number = number_of(Handle::kCommunicator, comm);
  c->aborted = true;
  drop_registrations(number);  // they go with it
  *c->left = true;
  break_meetings(*c);  // nobody else gets any further with this rank
  machine().changed.notify_all();
  if (fault_at("abort")) {
    while (true) machine().wait_for_others();
  }
  wait_for_own_work(number);
  return kNcclSuccess;
}

}  // extern "C"
