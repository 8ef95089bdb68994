#include "backends/cuda/nccl_communicator.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "backends/cuda/nccl_network.h"
#include "base/base64.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/exit_status.h"
#include "base/log.h"
#include "base/process_identity.h"
#include "base/terminal_text.h"
#include "base/text.h"

namespace tessera::cuda {
namespace {

constexpr const char* kNcclNames[] = {"libnccl.so.2", "libnccl.so"};
// How long the job's control may take to name a rank whose end NCCL has heard of.
constexpr std::chrono::seconds kNaming{5};
// How long NCCL may take to break exchanges off.
constexpr std::chrono::seconds kBreaking{10};

int nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kF16: return kNcclFloat16;
    case DType::kBF16: return kNcclBfloat16;
    case DType::kF32: return kNcclFloat32;
    case DType::kF64: return kNcclFloat64;
    case DType::kI32: return kNcclInt32;
    case DType::kI64: return kNcclInt64;
    default: break;
  }
  throw UserError(cat("--device_type cuda exchanges no ", name(dtype)));
}

// Returns the hosts, by rank.
std::vector<std::string> refuse_shared_gpus(Control& control, const CudaDevice& device,
                                            const std::string& host) {
  const std::string own = cat(host.empty() ? host_name() : host, " ", device.facts().pci_id);
  const std::vector<std::string> all = control.exchange("cuda devices", own);
  std::map<std::string, size_t> first;
  std::vector<std::string> hosts;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    hosts.push_back(all[rank].substr(0, all[rank].rfind(' ')));
    auto [known, added] = first.emplace(all[rank], rank);
    if (!added)
      throw DeviceError(cat("CUDA: ranks ", known->second, " and ", rank,
                            " have the same GPU, that of PCI address ",
                            all[rank].substr(all[rank].rfind(' ') + 1),
                            ": start at most as many ranks on a host as it has GPUs"));
  }
  return hosts;
}

}  // namespace

const Nccl& Nccl::get() {
  static const Nccl& library = *new Nccl;
  return library;
}

Nccl::Nccl() : library_("NCCL", kNcclNames) {
#define TESSERA_LOAD(result, library_name, own_name, parameters) library_.load(own_name);
  TESSERA_NCCL_FUNCTIONS(TESSERA_LOAD)
#undef TESSERA_LOAD
#define TESSERA_FIND(result, library_name, own_name, parameters) \
  own_name.set(library_.find(own_name.name()));
  TESSERA_NCCL_LATER_FUNCTIONS(TESSERA_FIND)
#undef TESSERA_FIND
}

std::string Nccl::version() const {
  int v = 0;
  if (get_version(&v) != kNcclSuccess) return "unknown";
  return cat(v / 10000, ".", v % 10000 / 100, ".", v % 100);
}

NcclCommunicator::NcclCommunicator(CudaDevice& device, Control& control,
                                   std::chrono::milliseconds deadline, const std::string& host)
    : device_(device),
      control_(control),
      deadline_(deadline),
      library_(Nccl::get()),
      hosts_(refuse_shared_gpus(control, device, host)) {
  control.on_failure([heard = heard_](const std::string& cause) {
    std::lock_guard guard(heard->mutex);
    heard->cause = cause;
    heard->failed = true;
    heard->changed.notify_all();
  });
  const auto guard = device_.lock();
  std::optional<NcclNetwork> log;
  if (std::set(hosts_.begin(), hosts_.end()).size() > 1) log.emplace();
  begin_world();
  if (log) network_ = log->name();
  if (rank() == 0 && network_ == "Socket")
    TESSERA_WARN(
        "NCCL reaches other hosts over TCP sockets. Where they have InfiniBand or EFA its plug-in "
        "was "
        "not found or does not work: NCCL_DEBUG=INFO says why");
  progress_ =
      std::make_unique<RankProgress>(control, deadline, [&device] { return device.runs(); });
  device_.set_watch([this](double waited) { check(waited); });
  device_.set_before_free([this](const void* memory) {
    deregister([=](const MemoryUse& use) { return use.begin == memory; });
    return peers_ && peers_->keeps(memory);
  });
}

NcclCommunicator::~NcclCommunicator() {
  try {
    if (cause_.empty()) device_.finish();
    deregister([](const MemoryUse&) { return true; });
    // Each is there for what other ranks have still to take from this one, until all have ended it.
    for (ncclComm* comm : comms_) settle(comm, library_.comm_finalize(comm), "ending exchanges");
    for (ncclComm* comm : comms_) library_.comm_destroy(comm);
  } catch (const Error& error) {
    break_off(error.what());
  }
  device_.set_watch({});
  device_.set_before_free({});
}

void NcclCommunicator::begin_world() {
  ncclUniqueId id{};
  std::string text;
  if (rank() == 0) {
    if (library_.get_unique_id(&id) != kNcclSuccess)
      throw DeviceError(cat("NCCL: ncclGetUniqueId: ", library_.get_last_error(nullptr)));
    text = to_base64(std::string_view(id.internal, sizeof(id.internal)));
  }
  text = control_.exchange("nccl id", text).front();
  const auto bytes = from_base64(text);
  TESSERA_CHECK(bytes && bytes->size() == sizeof(id.internal), "NCCL's id of the job");
  std::memcpy(id.internal, bytes->data(), sizeof(id.internal));
  ncclConfig config;
  config.blocking = 0;
  ncclComm* comm = nullptr;
  const ncclResult result =
      library_.comm_init_rank_config(&comm, world_size(), id, rank(), &config);
  if (comm) comms_.push_back(comm);
  settle(comm, result, "connecting the ranks");
}

// A success says that the call was taken: what is made is there, and what has become of it is
// known, when the one that is split is no longer in progress.
void NcclCommunicator::split(int color, int key, ncclComm*& made) {
  ncclConfig config;
  config.blocking = 0;
  ncclComm* whole = comms_.front();
  const ncclResult begun = library_.comm_split(whole, color, key, &made, &config);
  settle(whole, begun == kNcclSuccess ? kNcclInProgress : begun, "making a group of ranks");
  const std::lock_guard guard(mutex_);
  comms_.push_back(made);
}

ncclResult NcclCommunicator::taken(ncclComm* comm, ncclResult result) {
  const double begin = monotonic_seconds();
  while (result == kNcclInProgress) {
    check(monotonic_seconds() - begin);
    const ncclResult asked = library_.comm_get_async_error(comm, &result);
    if (asked != kNcclSuccess) result = asked;
    if (result == kNcclInProgress) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return result;
}

void NcclCommunicator::settle(ncclComm* comm, ncclResult result, const std::string& doing) {
  result = taken(comm, result);
  if (result == kNcclSuccess) return;
  const char* detail = comm ? library_.get_last_error(comm) : nullptr;
  fail_by_nccl(cat(doing, ": NCCL: ", library_.get_error_string(result),
                   detail && *detail ? cat(" (", detail, ")") : ""));
}

const NcclCommunicator::Group& NcclCommunicator::make_group(
    const std::vector<std::vector<int>>& groups) {
  std::unique_ptr<Group>& made = groups_[groups];
  if (made) return *made;
  const auto guard = device_.lock();
  check_whole();
  for (size_t color = 0; color < groups.size(); ++color) {
    const std::vector<int>& ranks = groups[color];
    auto own = std::find(ranks.begin(), ranks.end(), rank());
    if (own == ranks.end()) continue;
    made = std::make_unique<Group>();
    made->ranks = ranks;
    made->size = static_cast<int>(ranks.size());
    made->index = static_cast<int>(own - ranks.begin());
    for (ncclComm*& comm : made->comms) split(static_cast<int>(color), made->index, comm);
    return *made;
  }
  throw InternalError("a rank without a group");
}

void NcclCommunicator::all_gather(const Group& group, const void* part, void* whole,
                                  int64_t part_count, DType dtype, const std::string& label) {
  ncclComm* comm = comm_of(group);
  settle(comm,
         library_.all_gather(part, whole, static_cast<size_t>(part_count), nccl_type(dtype), comm,
                             device_.stream()),
         label);
}

void NcclCommunicator::reduce_scatter(const Group& group, const void* whole, void* part,
                                      int64_t part_count, DType dtype, const std::string& label) {
  ncclComm* comm = comm_of(group);
  settle(comm,
         library_.reduce_scatter(whole, part, static_cast<size_t>(part_count), nccl_type(dtype),
                                 kNcclSum, comm, device_.stream()),
         label);
}

void NcclCommunicator::all_reduce(const Group& group, const void* from, void* to, int64_t count,
                                  DType dtype, Reduction reduction, const std::string& label) {
  ncclComm* comm = comm_of(group);
  settle(comm,
         library_.all_reduce(from, to, static_cast<size_t>(count), nccl_type(dtype),
                             reduction == Reduction::kSum ? kNcclSum : kNcclMax, comm,
                             device_.stream()),
         label);
}

void NcclCommunicator::exchange_parts(const Group& group, const void* from, int64_t stride,
                                      void* to, int64_t part_count, DType dtype,
                                      const std::string& label) {
  ncclComm* comm = comm_of(group);
  const auto count = static_cast<size_t>(part_count);
  const int64_t size = size_of(dtype);
  ncclResult result = library_.group_start();
  for (int peer = 0; peer < group.size && result == kNcclSuccess; ++peer) {
    result = library_.send(static_cast<const std::byte*>(from) + peer * stride * size, count,
                           nccl_type(dtype), peer, comm, device_.stream());
    if (result == kNcclSuccess)
      result = library_.receive(static_cast<std::byte*>(to) + peer * part_count * size, count,
                                nccl_type(dtype), peer, comm, device_.stream());
  }
  const ncclResult ended = library_.group_end();
  settle(comm, result == kNcclSuccess ? ended : result, label);
}

// In place, of zeros: nobody has its sum before all have given theirs.
void NcclCommunicator::fence(const Group& group, const std::string& label) {
  std::byte* word = fences_.data() + static_cast<int64_t>(device_.lane()) * kFenceBytes;
  all_reduce(group, word, word, 1, DType::kI32, Reduction::kSum, label);
}

void NcclCommunicator::reach_peers() {
  const auto guard = device_.lock();
  fences_ = DeviceBlock(device_, kFenceBytes * kLanes, "fences between ranks");
  device_.fill(fences_.data(), fences_.bytes());
  device_.finish();
  peers_.emplace(device_, control_, hosts_);
}

// Under the device's lock, so that nothing is broken off before it is used.
ncclComm* NcclCommunicator::comm_of(const Group& group) const {
  check_whole();
  return comm_of(group, device_.lane());
}

void NcclCommunicator::add_graphs(const void* owner, std::function<void()> forget) {
  const std::lock_guard guard(mutex_);
  graphs_[owner] = std::move(forget);
}

void NcclCommunicator::remove_graphs(const void* owner) noexcept {
  const std::lock_guard guard(mutex_);
  graphs_.erase(owner);
}

void NcclCommunicator::check_whole() const {
  const std::lock_guard guard(mutex_);
  if (!cause_.empty()) throw CommError(cause_);
}

void NcclCommunicator::check(double waited) {
  check_whole();
  if (heard_->failed) fail(heard_->text());
  ncclResult error = kNcclSuccess;
  {
    const std::lock_guard guard(mutex_);
    for (ncclComm* comm : comms_) {
      ncclResult own = kNcclSuccess;
      if (library_.comm_get_async_error(comm, &own) == kNcclSuccess && own != kNcclInProgress &&
          error == kNcclSuccess)
        error = own;
    }
  }
  if (error != kNcclSuccess)
    fail_by_nccl(cat("exchanges between GPUs: NCCL: ", library_.get_error_string(error)));
  check_deadline(waited);
}

void NcclCommunicator::check_deadline(double waited) {
  const double deadline = std::chrono::duration<double>(deadline_).count();
  if (waited <= deadline) return;
  std::string who = "not known who is behind";
  if (progress_) {
    const double patience = std::chrono::duration<double>(progress_->patience()).count();
    const std::optional<std::string> told = progress_->who_is_behind();
    if (!told && waited <= deadline + patience) return;
    who = told.value_or("a rank does not say how far it is");
  }
  fail(cat("exchanges between GPUs: rank ", rank(), " has waited ",
           std::chrono::duration_cast<std::chrono::seconds>(deadline_).count(), " s",
           device_.where_it_is(), ", and no end is in sight: ", who,
           "; a rank hangs or the network does (--comm_timeout)"));
}

// The others hear of it first: what follows may take long.
void NcclCommunicator::fail(const std::string& what) {
  {
    const std::lock_guard guard(mutex_);
    if (!cause_.empty()) throw CommError(cause_);
    cause_ = what;
  }
  control_.report_failure(what);
  break_off(what);
  throw CommError(what);
}

// NCCL may hear first of a rank that is lost, and does not know which it is.
void NcclCommunicator::fail_by_nccl(const std::string& what) {
  {
    std::unique_lock lock(heard_->mutex);
    heard_->changed.wait_for(lock, kNaming, [this] { return heard_->failed.load(); });
  }
  fail(heard_->failed ? heard_->text() : what);
}

// NCCL gives a communicator back when all that it has launched is done, which may wait for an
// exchange of another one, and when no graph has exchanges of it: so graphs go first, and all are
// broken off at the same time. A driver that hangs does not keep the process.
void NcclCommunicator::break_off(const std::string& cause) noexcept {
  const std::jthread limit([&cause](const std::stop_token& done) {
    std::mutex mutex;
    std::condition_variable_any over;
    std::unique_lock lock(mutex);
    over.wait_for(lock, done, kBreaking, [] { return false; });
    if (done.stop_requested()) return;
    print_error(cat(cause, "; exchanges between GPUs were not broken off within ",
                    kBreaking.count(), " s, so the process ends as it is"));
    ::_exit(kFailureStatus);
  });
  try {
    // Who has it and waits for the device is told by check().
    const auto held = device_.lock();
    device_.stop_telling();
    const std::lock_guard guard(mutex_);
    for (const auto& [owner, forget] : graphs_) forget();
    std::vector<std::jthread> aborts;
    for (ncclComm* comm : comms_) aborts.emplace_back([this, comm] { library_.comm_abort(comm); });
    comms_.clear();
    registered_.clear();
  } catch (const Error&) {  // of a device that has failed, where nothing works any more
  }
}

}  // namespace tessera::cuda
