#pragma once
#include <memory>
#include <string_view>

#include "comm/channels.h"
#include "comm/job.h"
#include "comm/store.h"

namespace tessera {

// kAuto: shared memory between ranks with equal host ids, Gloo between others. kSharedMemory and
// kGloo: that one between all, whatever the host ids say of it.
enum class Transport { kAuto, kSharedMemory, kGloo };
// "auto", "shared_memory", "gloo".
std::string_view name(Transport transport);

// Joins the job: finds the other ranks through the store (under a prefix of this attempt), compares
// protocol and world size with them, connects. Every rank calls it. Takes at most about twice
// options.deadline, then CommError names the ranks that have not arrived. UserError where the
// interface does not exist, DeviceError where there is no memory to share.
Channels connect(const JobMember& self, std::shared_ptr<Store> store, Communicator::Options options,
                 Transport transport = Transport::kAuto);

}  // namespace tessera
