// Memory that is registered with communicators of the double of NCCL, and versions that have none.
#include <cstdlib>

#include "nccl_communicators.h"
#include "nccl_exports.h"

namespace tessera::emulated_gpu {
namespace {

constexpr int kFirstVersion = 21900;  // that has them

void drop(Registration& registration) {
  registration.destroyed = true;
  if (Memory* memory = machine().memory_at(registration.begin)) memory->registered--;
}

const Registration* registration_of(int communicator, const void* begin, int64_t bytes) {
  const auto* at = static_cast<const std::byte*>(begin);
  for (const Registration& r : registrations()) {
    if (r.communicator == communicator && !r.destroyed && at >= r.begin &&
        at + bytes <= r.begin + r.bytes) {
      return &r;
    }
  }
  return nullptr;
}

}  // namespace

int nccl_version() {
  const char* chosen = std::getenv("TESSERA_EMULATED_NCCL_VERSION");
  return chosen ? std::atoi(chosen) : 22703;
}

std::deque<Registration>& registrations() {
  static auto* list = new std::deque<Registration>;
  return *list;
}

int registered_ends(int communicator, const CollectiveCall& call, int64_t gives, int64_t gets) {
  return (gives > 0 && registration_of(communicator, call.from, gives) ? 1 : 0) |
         (gets > 0 && registration_of(communicator, call.to, gets) ? 2 : 0);
}

int drop_registrations(int communicator) {
  int count = 0;
  for (Registration& r : registrations()) {
    if (r.communicator != communicator || r.destroyed) continue;
    drop(r);
    count++;
  }
  return count;
}

namespace {

ncclResult register_memory(ncclComm* comm, void* memory, size_t bytes, void** handle) {
  constexpr const char* kCall = "ncclCommRegister";
  const std::lock_guard lock(machine().mutex);
  *handle = nullptr;
  if (ready(kCall) != kCudaSuccess) return kNcclUnhandledCudaError;
  Communicator* c = communicator_of(comm, kCall, true);
  if (!c) return kNcclInvalidArgument;
  const auto* begin = static_cast<const std::byte*>(memory);
  const auto size = static_cast<int64_t>(bytes);
  Memory* owner = machine().memory_of(memory, size, kCall);
  if (!owner) return kNcclInvalidArgument;
  if (owner->device != c->device || c->device != current_device()) {
    found("ncclCommRegister: memory, communicator and the current device do not belong together");
    return kNcclInvalidArgument;
  }
  const auto refused = machine().refused_registration.find(c->device);
  if (refused != machine().refused_registration.end()) return std::max(0, refused->second);
  const int number = number_of(Handle::kCommunicator, comm);
  for (const Registration& r : registrations()) {
    if (r.communicator == number && !r.destroyed && begin < r.begin + r.bytes &&
        r.begin < begin + size) {
      found("ncclCommRegister: the memory is registered with this communicator already");
      return kNcclInvalidUsage;
    }
  }
  owner->registered++;
  registrations().push_back({number, begin, size, false});
  *handle = make_handle<void*>(Handle::kRegistration, static_cast<int>(registrations().size()) - 1);
  return kNcclSuccess;
}

ncclResult deregister_memory(ncclComm* comm, void* handle) {
  constexpr const char* kCall = "ncclCommDeregister";
  const std::lock_guard lock(machine().mutex);
  Communicator* c = communicator_of(comm, kCall, true);
  if (!c) return kNcclInvalidArgument;
  if (!handle) return kNcclSuccess;  // what was left out
  Registration* r =
      object_of(Handle::kRegistration, registrations(), handle, kCall, "registration");
  if (!r) return kNcclInvalidUsage;
  if (r->communicator != number_of(Handle::kCommunicator, comm)) {
    found("ncclCommDeregister: the registration is of another communicator");
    return kNcclInvalidUsage;
  }
  if (machine().unfinished.contains(c->last_operation)) {
    found("ncclCommDeregister: exchanges of the communicator are under way");
  }
  drop(*r);
  return kNcclSuccess;
}

}  // namespace
}  // namespace tessera::emulated_gpu

using namespace tessera::emulated_gpu;

// A version before 2.19 has none of these: asked for them, dlsym calls what finds them.
extern "C" {
static decltype(&ncclCommRegister) find_register() {
  return nccl_version() < kFirstVersion ? nullptr : register_memory;
}
static decltype(&ncclCommDeregister) find_deregister() {
  return nccl_version() < kFirstVersion ? nullptr : deregister_memory;
}
ncclResult ncclCommRegister(ncclComm*, void*, size_t, void**)
    __attribute__((ifunc("find_register")));
ncclResult ncclCommDeregister(ncclComm*, void*) __attribute__((ifunc("find_deregister")));
}
