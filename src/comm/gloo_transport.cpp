#include "comm/gloo_transport.h"

#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <deque>
#include <mutex>

#include "base/cryptography.h"
#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;
using UnboundBuffer = gloo::transport::UnboundBuffer;

// Every other message has its exchange's identity: data of one never ends up in another.
constexpr uint64_t kHandshakeTag = 2;
// Rounds under way at a time. With fewer, a transfer waits for this process to get a core between
// any two of them: with 2 a gather of 64 MiB on a busy machine took up to ten times as long.
constexpr int64_t kWindow = 8;
// Gloo waits five times its timeout for a connection.
constexpr int kConnectFactor = 5;
constexpr size_t kSecretBytes = 16;  // with which the two ends of a connection know each other
// For the news why a connection broke.
constexpr milliseconds kGrace{1000};
// For what was sent before leaving.
constexpr milliseconds kLinger{500};

// Gloo writes to its sockets without MSG_NOSIGNAL: a peer that has gone would end this process. Its
// own thread inherits the mask of the one that makes the device.
void block_broken_pipe() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

class BrokenPipeBlocked {
 public:
  BrokenPipeBlocked() {
    ::pthread_sigmask(SIG_SETMASK, nullptr, &before_);
    block_broken_pipe();
  }
  ~BrokenPipeBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

milliseconds pair_timeout(milliseconds deadline) {
  return std::max(deadline / kConnectFactor, milliseconds(1));
}

// A context with pairs to some of the ranks only.
class PartialContext final : public gloo::Context {
 public:
  PartialContext(int own_rank, int world_size, std::shared_ptr<gloo::transport::Device> device,
                 milliseconds deadline)
      : gloo::Context(own_rank, world_size) {
    device_ = std::move(device);
    transportContext_ = device_->createContext(own_rank, world_size);
    // Pairs keep the timeout of their creation for connecting.
    transportContext_->setTimeout(pair_timeout(deadline));
  }
  std::string create_pair(int peer) {
    std::vector<char> bytes = transportContext_->createPair(peer)->address().bytes();
    return {bytes.begin(), bytes.end()};
  }
  void connect_pair(int peer, const std::string& address) {
    getPair(peer)->connect(std::vector<char>(address.begin(), address.end()));
  }
  void set_timeout(milliseconds timeout) {
    transportContext_->setTimeout(timeout);
    setTimeout(timeout);
  }
  void close_pair(int peer) { getPair(peer)->close(); }
};

// What a failure, reported by any thread, has to end. Outlives the transport if need be.
class Interrupt {
 public:
  // False if the failure has come before.
  bool watch(UnboundBuffer* waiting) {
    std::lock_guard lock(mutex_);
    waiting_ = waiting;
    return !done_;
  }
  void watch(std::shared_ptr<PartialContext> context, std::vector<int> peers) {
    std::lock_guard lock(mutex_);
    context_ = std::move(context);
    peers_ = std::move(peers);
    if (done_) close_pairs();
  }
  void operator()() {
    std::lock_guard lock(mutex_);
    done_ = true;
    if (waiting_) {
      waiting_->abortWaitRecv();
      waiting_->abortWaitSend();
    }
    close_pairs();
  }

 private:
  // Ends waits for a connection and for room in its buffers, too.
  void close_pairs() {
    if (!context_) return;
    for (int peer : peers_) context_->close_pair(peer);
  }

  std::mutex mutex_;
  bool done_ = false;
  UnboundBuffer* waiting_ = nullptr;
  std::shared_ptr<PartialContext> context_;
  std::vector<int> peers_;
};

class GlooTransport final : public PeerTransport {
 public:
  GlooTransport(PeerMesh& mesh, std::vector<bool> remote, const std::string& address,
                Health& health, milliseconds deadline)
      : rank_(mesh.rank()), remote_(std::move(remote)), health_(health), deadline_(deadline) {
    for (int peer = 0; peer < mesh.world_size(); ++peer)
      if (reaches(peer)) ranks_.push_back(peer);
    health_.on_failure([interrupt = interrupt_](const std::string&) { (*interrupt)(); });
    connect(mesh, address);
  }

  ~GlooTransport() override {
    BrokenPipeBlocked guard;
    interrupt_->watch(nullptr, {});
    sends_.clear();
    receives_.clear();
    for (int peer : ranks_) context_->close_pair(peer);
  }

  bool reaches(int rank) const override { return remote_[static_cast<size_t>(rank)]; }
  void begin(const Exchange& exchange) override;
  void offer(int64_t round) override;
  PieceView take(int from, int64_t round) override;
  void release(int64_t round) override;
  void end() override;
  void abandon() override;
  // A connection that is closed with something unread in it drops what is under way.
  void linger() override { health_.wait_left(ranks_, kLinger); }

 private:
  struct Send {
    int64_t round;
    int rank;
    std::unique_ptr<UnboundBuffer> buffer;
  };
  struct Receive {
    std::unique_ptr<UnboundBuffer> buffer;
    PieceView view;
  };

  void connect(PeerMesh& mesh, const std::string& address);
  void handshake(int peer, const std::string& own, const std::string& theirs);
  void post_receives(int64_t round);
  void send_pieces(int64_t round);
  void finish_sends(int64_t up_to_round);
  void wait(UnboundBuffer& buffer, bool receive, int rank);
  [[noreturn]] void broken(int rank, bool late, const std::string& what);
  int rank_of(int index) const { return exchange_->group->ranks[static_cast<size_t>(index)]; }
  // Room for the piece of one round and one peer.
  static std::byte* scratch(std::vector<std::byte>& area, int index, int64_t round,
                            const Exchange& exchange);

  int rank_;
  std::vector<bool> remote_;
  std::vector<int> ranks_;
  Health& health_;
  milliseconds deadline_;
  std::shared_ptr<PartialContext> context_;

  std::shared_ptr<Interrupt> interrupt_ = std::make_shared<Interrupt>();

  // Of the running exchange.
  const Exchange* exchange_ = nullptr;
  std::vector<int> peers_;  // indices in the group
  int64_t sent_ = 0;        // rounds
  std::vector<std::byte> outgoing_, incoming_;
  std::deque<Send> sends_;
  std::vector<std::array<Receive, kWindow>> receives_;  // by index in the group and round
};

void GlooTransport::connect(PeerMesh& mesh, const std::string& address) {
  BrokenPipeBlocked guard;
  std::vector<std::string> secrets(remote_.size());
  int connecting = rank_;
  auto start = std::chrono::steady_clock::now();
  try {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = address;
    context_ = std::make_shared<PartialContext>(
        rank_, mesh.world_size(), gloo::transport::tcp::CreateDevice(attributes), deadline_);
    for (int peer : ranks_) {
      std::string& secret = secrets[static_cast<size_t>(peer)];
      secret = secret_random_bytes(kSecretBytes);
      mesh.send(peer, PeerMesh::Kind::kEndpoint, 0, secret + context_->create_pair(peer));
    }
    interrupt_->watch(context_, ranks_);
    for (int peer : ranks_) {
      Health::Wait waiting(health_, rank_, peer);
      connecting = peer;
      start = std::chrono::steady_clock::now();
      std::string theirs = mesh.receive(peer, PeerMesh::Kind::kEndpoint, 0).payload;
      if (theirs.size() <= kSecretBytes) throw CommError(cat("rank ", peer, " sent no address"));
      context_->connect_pair(peer, theirs.substr(kSecretBytes));
      handshake(peer, theirs.substr(0, kSecretBytes), secrets[static_cast<size_t>(peer)]);
    }
    context_->set_timeout(deadline_);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    bool late =
        std::chrono::steady_clock::now() - start >= kConnectFactor * pair_timeout(deadline_);
    if (late && connecting != rank_) health_.fail_late(connecting, rank_, deadline_);
    health_.wait_failed(kGrace);
    health_.check();
    throw CommError(
        cat("cannot connect rank ", rank_, " to its peers on ", address, ": ", error.what()));
  }
}

// Each shows what the other told it over the mesh: a stranger that took the port cannot.
void GlooTransport::handshake(int peer, const std::string& own, const std::string& theirs) {
  std::string sent = own, got(theirs.size(), '\0');
  auto out = context_->createUnboundBuffer(sent.data(), sent.size());
  auto in = context_->createUnboundBuffer(got.data(), got.size());
  in->recv(peer, kHandshakeTag);
  out->send(peer, kHandshakeTag);
  wait(*in, true, peer);
  wait(*out, false, peer);
  if (got != theirs)
    throw CommError(cat("who answers at the address of rank ", peer, " is not of this job"));
}

std::byte* GlooTransport::scratch(std::vector<std::byte>& area, int index, int64_t round,
                                  const Exchange& exchange) {
  int64_t piece = exchange.piece * size_of(exchange.dtype);
  int64_t of_round = piece * exchange.group->size();
  auto bytes = static_cast<size_t>(std::min(kWindow, exchange.rounds) * of_round);
  // Only the first use in an exchange may move it: nothing is under way then.
  if (area.size() < bytes) area.resize(bytes);
  return area.data() + round % kWindow * of_round + index * piece;
}

void GlooTransport::begin(const Exchange& exchange) {
  block_broken_pipe();
  exchange_ = &exchange;
  peers_.clear();
  for (int k = 0; k < exchange.group->size(); ++k)
    if (reaches(rank_of(k))) peers_.push_back(k);
  if (receives_.size() < remote_.size()) receives_.resize(remote_.size());
  sent_ = 0;
  for (int64_t round = 0; round < std::min(kWindow, exchange.rounds); ++round) post_receives(round);
}

void GlooTransport::post_receives(int64_t round) {
  int64_t size = size_of(exchange_->dtype);
  for (int from : peers_) {
    Piece piece = exchange_->piece_of(exchange_->taken[static_cast<size_t>(from)], round);
    if (piece.elements() == 0) continue;
    const Part& placed = exchange_->placed[static_cast<size_t>(from)];
    bool in_place = !exchange_->combine && (piece.rows == 1 || placed.stride == piece.columns);
    std::byte* data = in_place ? exchange_->target_of(placed, piece)
                               : scratch(incoming_, from, round, *exchange_);
    Receive& receive = receives_[static_cast<size_t>(from)][static_cast<size_t>(round % kWindow)];
    receive.view = {data, piece.columns * size};
    receive.buffer =
        context_->createUnboundBuffer(data, static_cast<size_t>(piece.elements() * size));
    try {
      receive.buffer->recv(rank_of(from), exchange_->identity);
    } catch (const std::exception& error) {
      broken(rank_of(from), false, error.what());
    }
  }
}

void GlooTransport::offer(int64_t round) {
  for (; sent_ < std::min(round + kWindow, exchange_->rounds); ++sent_) send_pieces(sent_);
}

void GlooTransport::send_pieces(int64_t round) {
  finish_sends(round - kWindow);
  int64_t size = size_of(exchange_->dtype);
  for (int to : peers_) {
    const Part& part = exchange_->given[static_cast<size_t>(to)];
    Piece piece = exchange_->piece_of(part, round);
    if (piece.elements() == 0) continue;
    const std::byte* data = exchange_->source_of(part, piece);
    bool in_place = !exchange_->copies_source && (piece.rows == 1 || part.stride == piece.columns);
    if (!in_place) {
      std::byte* copy = scratch(outgoing_, to, round, *exchange_);
      copy_rows(data, part.stride * size, copy, piece.columns * size, piece.rows,
                piece.columns * size);
      data = copy;
    }
    Send send{round, rank_of(to), nullptr};
    // Gloo's buffers serve both directions; this one is only read.
    send.buffer = context_->createUnboundBuffer(const_cast<std::byte*>(data),
                                                static_cast<size_t>(piece.elements() * size));
    try {
      send.buffer->send(send.rank, exchange_->identity);
    } catch (const std::exception& error) {
      broken(send.rank, false, error.what());
    }
    sends_.push_back(std::move(send));
  }
}

PieceView GlooTransport::take(int from, int64_t round) {
  Receive& receive = receives_[static_cast<size_t>(from)][static_cast<size_t>(round % kWindow)];
  wait(*receive.buffer, true, rank_of(from));
  return receive.view;
}

void GlooTransport::release(int64_t round) {
  if (round + kWindow < exchange_->rounds) post_receives(round + kWindow);
}

void GlooTransport::end() { finish_sends(exchange_->rounds); }

void GlooTransport::abandon() {
  // Gloo's thread holds the lock of a pair while it moves bytes: not after it is closed.
  (*interrupt_)();
  sends_.clear();
  receives_.clear();
}

void GlooTransport::finish_sends(int64_t up_to_round) {
  while (!sends_.empty() && sends_.front().round <= up_to_round) {
    wait(*sends_.front().buffer, false, sends_.front().rank);
    sends_.pop_front();
  }
}

void GlooTransport::wait(UnboundBuffer& buffer, bool receive, int rank) {
  if (!interrupt_->watch(&buffer)) broken(rank, false, "");
  Health::Wait waiting(health_, rank_, rank);
  auto start = std::chrono::steady_clock::now();
  bool done = false;
  std::string what;
  try {
    done = receive ? buffer.waitRecv(deadline_) : buffer.waitSend(deadline_);
  } catch (const std::exception& error) {
    what = error.what();
  }
  interrupt_->watch(nullptr);
  if (!done) broken(rank, std::chrono::steady_clock::now() - start >= deadline_, what);
}

void GlooTransport::broken(int rank, bool late, const std::string& what) {
  if (late) {
    health_.fail_late(rank, rank_, deadline_);
  } else if (health_.has_left(rank)) {
    health_.fail(left_the_job(rank));
  } else if (!health_.wait_failed(kGrace)) {
    health_.fail(cat("the connection to rank ", rank, " was lost: ", what));
  }
  health_.check();
  throw InternalError("a failure without a cause");
}

}  // namespace

std::unique_ptr<PeerTransport> gloo_transport(PeerMesh& mesh, std::vector<bool> remote,
                                              const std::string& address, Health& health,
                                              milliseconds deadline) {
  return std::make_unique<GlooTransport>(mesh, std::move(remote), address, health, deadline);
}

}  // namespace tessera
