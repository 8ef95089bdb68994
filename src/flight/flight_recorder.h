#pragma once
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "flight/ring_file.h"
#include "runtime/communicator.h"
#include "runtime/executable.h"

namespace tessera {

// What this rank did last: every instruction of its programs (of a device that works behind the
// host, those of which it sees the end) and every exchange, in a ring in a file that outlives the
// process. An event is a reading of the clock and stores of 32 bytes: no system call, no
// allocation.
class FlightRecorder final : public RunListener, public ExchangeListener {
 public:
  struct Settings {
    std::filesystem::path directory;  // made where it is missing
    int64_t events = 20'000;          // that are kept
    int rank = 0, world_size = 1;
    std::string job;  // identity; rings of others in the directory are not of this job
    int attempt = 0;
  };
  // UserError where its files cannot be made.
  explicit FlightRecorder(Settings settings);
  // Programs and channels that it hears of have gone before.
  ~FlightRecorder() override;
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  const std::filesystem::path& directory() const { return settings_.directory; }
  const Settings& settings() const { return settings_; }

  // Hears of the program from now on; nothing where its backend cannot tell.
  void add_program(std::string_view name, Executable& program);

  void begin_step(int64_t number);
  // What the run does besides steps, with words that are few.
  void doing(std::string_view what);

  // The process ends, and so. The first end stays.
  void end(RingEnd end, std::string_view text, int signal = 0);
  // The files are of no use any more. Their directory goes with the last rank's.
  void remove_files();

  Hearing hearing() const override { return Hearing::kProgress; }
  void begins(const Executable& program) override;
  void done(size_t instruction, const TimeSpan* exchange) override;
  void ends() override;
  void collective_begins(const CommCall& call) override;
  void collective_ends(const CommCall& call, bool done) override;
  void control_begins(std::string_view tag, std::string_view kind) override;
  void control_ends(std::string_view tag, bool done) override;

  // For reports: safe in a handler of a signal.
  const RingFile& ring() const { return ring_; }
  const char* texts_file() const { return texts_path_.c_str(); }
  const char* report_file() const { return report_path_.c_str(); }

 private:
  struct Met {
    uint32_t text = kNoText;
    RingMeeting* meeting = nullptr;  // none: there are too many
  };
  // Of a line that is new; lines are appended to the file. kNoText where that fails.
  uint32_t add_text(const std::string& line, uint32_t lines = 1);
  RingMeeting* new_meeting();
  void write(RingEvent event, uint32_t text, int64_t number = 0);
  void meets(const Met& met, RingEvent event);
  void has_met(const Met& met, RingEvent event, RingMeetingState state);
  const Met& find(const CommCall& call);
  const Met& find(std::string_view tag, std::string_view kind);

  Settings settings_;
  std::filesystem::path texts_path_, report_path_;
  RingFile ring_;
  int texts_fd_ = -1;
  uint64_t capacity_;

  std::mutex mutex_;  // of all below but what one thread alone uses
  uint32_t lines_ = 0;
  std::unordered_map<std::string, Met> tags_;
  std::unordered_map<std::string, uint32_t> doings_;
  // Of the thread that runs programs.
  std::unordered_map<const Executable*, uint32_t> programs_;  // the line of each
  uint32_t program_ = kNoText;
  // Of the communicator's thread.
  std::unordered_map<uint64_t, Met> calls_;
  std::unordered_map<const CommGroup*, RingMeeting*> groups_;
};

}  // namespace tessera
