#include "comm/rendezvous.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "base/wait_notice.h"
#include "comm/health.h"

namespace tessera {
namespace {

using std::chrono::milliseconds;

constexpr char kField = '\t', kLine = '\n';

std::string member_key(int rank) { return cat("member/", rank); }

std::string to_text(const PeerRecord& record) {
  return join(std::vector<std::string>{cat(record.protocol), cat(record.world_size),
                                       record.transport, record.host_id, record.address.unix_name,
                                       record.address.address, cat(record.address.port)},
              std::string_view(&kField, 1));
}

PeerRecord from_text(int rank, std::string_view text) {
  std::vector<std::string_view> fields = split(text, kField);
  if (fields.size() != 7) fields.assign(7, "");
  const auto protocol = parse_number<uint32_t>(fields[0]);
  const auto world_size = parse_number<int>(fields[1]), port = parse_number<int>(fields[6]);
  if (!protocol || !world_size || !port)
    throw CommError(cat("rank ", rank, " is another version of the program: its record reads '",
                        text.substr(0, 80), "'"));
  PeerRecord record{*protocol, *world_size, std::string(fields[2]), std::string(fields[3]), {}};
  record.address.unix_name = fields[4];
  record.address.address = fields[5];
  record.address.port = *port;
  return record;
}

class Meeting {
 public:
  Meeting(Store& store, const JobMember& self, milliseconds deadline)
      : store_(store),
        self_(self),
        deadline_(deadline),
        end_(std::chrono::steady_clock::now() + deadline) {}

  // Rank 0: the records of all as one text.
  std::string collect(const PeerRecord& own) {
    std::string table;
    for (int rank = 0; rank < self_.world_size; ++rank) {
      std::string text = wait(member_key(rank));
      PeerRecord record = from_text(rank, text);
      if (record.protocol != kPeerProtocol)
        throw CommError(cat("rank ", rank, " speaks protocol ", record.protocol, " and rank 0 ",
                            kPeerProtocol, ": all ranks must run the same program"));
      if (record.world_size != self_.world_size)
        throw CommError(cat("rank ", rank, " was started for ", record.world_size,
                            " ranks and rank 0 for ", self_.world_size));
      if (record.transport != own.transport)
        throw CommError(cat("rank ", rank, " is to use the transport ", record.transport,
                            " and rank 0 ", own.transport, ": it must be the same for all"));
      table += text + kLine;
    }
    return table;
  }

  // Rank 0 says of a long wait who is waited for.
  std::string wait(const std::string& key) {
    while (true) {
      const auto now = std::chrono::steady_clock::now();
      const auto until = self_.rank == 0 ? std::min(end_, now + kLook) : end_;
      try {
        return store_.get(key,
                          std::max(std::chrono::ceil<milliseconds>(until - now), milliseconds(1)));
      } catch (const CommError&) {
        if (std::chrono::steady_clock::now() < until) throw;
      }
      if (until == end_) throw CommError(missing());
      if (!notice_.is_due()) continue;
      const std::vector<int> ranks = missing_ranks();
      if (ranks.empty()) continue;
      TESSERA_INFO(cat("Waiting for ranks: ", self_.world_size - static_cast<int>(ranks.size()),
                       " of ", self_.world_size, " are here, rank ", ranks[0],
                       ranks.size() > 1 ? " and others are" : " is", " not"));
    }
  }

 private:
  static constexpr milliseconds kLook{1000};

  std::vector<int> missing_ranks() {
    std::vector<int> ranks;
    for (int rank = 0; rank < self_.world_size; ++rank)
      if (!store_.find(member_key(rank))) ranks.push_back(rank);
    return ranks;
  }

  std::string missing() {
    const std::vector<int> ranks = missing_ranks();
    if (ranks.empty()) return cat("rank 0 did not answer within ", seconds_text(deadline_));
    return cat(ranks.size() == 1 ? "rank " : "ranks ", join(ranks, ", "), " of ", self_.world_size,
               ranks.size() == 1 ? " has" : " have", " not arrived within ",
               seconds_text(deadline_));
  }

  Store& store_;
  const JobMember& self_;
  milliseconds deadline_;
  std::chrono::steady_clock::time_point end_;
  WaitNotice notice_;
};

}  // namespace

std::vector<PeerRecord> meet(Store& store, const JobMember& self, const PeerRecord& own,
                             milliseconds deadline) {
  if (store.add(cat("count/", self.rank), 1) != 1)
    throw CommError(cat("rank ", self.rank, " of ", self.world_size,
                        " has joined already: two processes have the same rank, or the store is "
                        "left over from an earlier run"));
  store.set(member_key(self.rank), to_text(own));
  Meeting meeting(store, self, deadline);
  // The answer begins with '+' and holds the records, or with '-' and says what is wrong.
  std::string answer;
  if (self.rank == 0) {
    try {
      answer = '+' + meeting.collect(own);
    } catch (const CommError& error) {
      store.set("table", '-' + std::string(error.what()));
      throw;
    }
    store.set("table", answer);
  } else {
    answer = meeting.wait("table");
  }
  if (answer.empty() || answer[0] != '+') throw CommError(answer.substr(answer.empty() ? 0 : 1));
  std::vector<PeerRecord> records;
  std::vector<std::string_view> lines = split(std::string_view(answer).substr(1), kLine);
  for (int rank = 0; rank < self.world_size; ++rank) {
    if (static_cast<size_t>(rank) >= lines.size())
      throw CommError("the store's table is cut short");
    records.push_back(from_text(rank, lines[static_cast<size_t>(rank)]));
  }
  return records;
}

}  // namespace tessera
