#include "flight/process_report.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>

#include "base/clock.h"
#include "base/interruption.h"
#include "base/own_program.h"
#include "base/text.h"
#include "base/thread_stacks.h"
#include "flight/flight_recorder.h"

namespace tessera {
namespace {

constexpr int kFatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
// A report is of kilobytes. Behind so much of them the file begins anew.
constexpr off_t kMostBytes = off_t{4} << 20;

std::atomic<FlightRecorder*> recorder{nullptr};
// Where the code of this program is, which the loader knows by the name it was started with.
char program[4096] = "";
const void* program_base = nullptr;
std::mutex writing;  // of reports of a process that goes on, and of changes of `recorder`

// Text that is put together and written in a handler of a signal: no allocation, no locks.
class PlainText {
 public:
  explicit PlainText(int fd) : fd_(fd) {}
  ~PlainText() { flush(); }
  PlainText(const PlainText&) = delete;
  PlainText& operator=(const PlainText&) = delete;

  PlainText& operator<<(const char* text) { return add(text, std::strlen(text)); }
  PlainText& operator<<(int64_t number) {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    return add(digits, static_cast<size_t>(end - digits));
  }
  PlainText& operator<<(const void* address) {
    char digits[20];
    const auto end =
        std::to_chars(digits, digits + sizeof digits, reinterpret_cast<uintptr_t>(address), 16).ptr;
    return (*this << "0x").add(digits, static_cast<size_t>(end - digits));
  }
  PlainText& add(const char* text, size_t size) {
    for (size_t i = 0; i < size; ++i) {
      if (used_ == sizeof buffer_) flush();
      buffer_[used_++] = text[i];
    }
    return *this;
  }
  void flush() {
    for (size_t begin = 0; begin < used_;) {
      const ssize_t n = ::write(fd_, buffer_ + begin, used_ - begin);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      begin += static_cast<size_t>(n);
    }
    used_ = 0;
  }

 private:
  int fd_;
  size_t used_ = 0;
  char buffer_[1024];
};

// Line `wanted` of the texts, or its beginning; "" where there is none. Reads the file, which is
// whole at any time, where the tables of the recorder may be about to change.
void read_line(const FlightRecorder& from, uint32_t wanted, char* line, size_t size) {
  line[0] = 0;
  const int fd = wanted == kNoText ? -1 : ::open(from.texts_file(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  char block[4096];
  uint32_t number = 0;
  size_t used = 0;
  for (ssize_t n = 0; number <= wanted && (n = ::read(fd, block, sizeof block)) > 0;) {
    for (ssize_t i = 0; i < n && number <= wanted; ++i) {
      if (block[i] == '\n')
        ++number;
      else if (number == wanted && used + 1 < size)
        line[used++] = block[i];
    }
  }
  line[used] = 0;
  ::close(fd);
}

// The fields of such a line, in place; those that are missing are empty.
struct Fields {
  const char* at[10];
  explicit Fields(char* line) {
    for (const char*& field : at) {
      field = line;
      while (*line && *line != '\t') ++line;
      if (*line) *line++ = 0;
    }
  }
  bool is(const char* kind) const { return std::strcmp(at[0], kind) == 0; }
};

// "in linear in layers.3.mlp (forward)" of an instruction; as it is of all else.
PlainText& operator<<(PlainText& out, const Fields& f) {
  const bool instruction =
      f.is("run") || f.is("begin") || f.is("wait") || f.is("copy") || f.is("fill");
  if (instruction) out << (f.is("wait") ? "waiting for " : "in ");
  if (f.is("copy") || f.is("fill")) out << f.at[0] << " for ";
  out << f.at[1];
  if (!instruction) return out;
  if (*f.at[2]) out << " in " << f.at[2];
  return out << " (" << f.at[4] << ")";
}

PlainText& seconds_since(PlainText& out, int64_t time) {
  const int64_t ms = (monotonic_nanoseconds() - time) / 1'000'000;
  const char rest[] = {'.', static_cast<char>('0' + ms % 1000 / 100),
                       static_cast<char>('0' + ms % 100 / 10), static_cast<char>('0' + ms % 10), 0};
  return out << ms / 1000 << rest << " s";
}

// The last event of the thread that runs programs: -1 none.
int64_t last_of_programs(const FlightRecorder& from) {
  const RingHeader& header = from.ring().header();
  const uint64_t events = header.events.load();
  for (uint64_t n = events; n > 0 && events - n < header.capacity; --n) {
    const RingRecord& record = from.ring().records()[(n - 1) % header.capacity];
    const auto event = static_cast<RingEvent>(record.event);
    if (record.sequence.load(std::memory_order_acquire) != n) continue;
    if (event == RingEvent::kProgramBegins || event == RingEvent::kDone ||
        event == RingEvent::kProgramEnds)
      return static_cast<int64_t>((n - 1) % header.capacity);
  }
  return -1;
}

// The instruction that runs; false: none does.
bool write_instruction(PlainText& out, const FlightRecorder& from) {
  const int64_t last = last_of_programs(from);
  if (last < 0) return false;
  const RingRecord& record = from.ring().records()[last];
  if (static_cast<RingEvent>(record.event) == RingEvent::kProgramEnds || record.text == kNoText)
    return false;
  char line[512];
  read_line(from, record.text + 1, line, sizeof line);
  const Fields fields(line);
  if (!*fields.at[0] || fields.is("program")) return false;
  out << fields;
  return true;
}

void write_place(PlainText& out, const FlightRecorder& from) {
  const RingHeader& header = from.ring().header();
  if (header.step.load() >= 0) {
    out << "step " << header.step.load() << ", begun ";
    seconds_since(out, header.step_since.load()) << " ago\n";
  }
  const int64_t last = last_of_programs(from);
  if (write_instruction(out, from)) {
    out << ", for ";
    seconds_since(out, from.ring().records()[last].time);
  } else {
    out << "in no op";
  }
  out << "\n";
  char line[512];
  if (header.doing.load() != kNoText) {
    read_line(from, header.doing.load(), line, sizeof line);
    out << "doing: " << Fields(line) << "\n";
  }
  const uint32_t used = std::min<uint32_t>(header.meetings_used.load(), kRingMeetings);
  for (uint32_t i = 0; i < used; ++i) {
    const RingMeeting& meeting = header.meetings[i];
    if (meeting.state.load() == static_cast<uint32_t>(RingMeetingState::kOver)) continue;
    read_line(from, meeting.text.load(), line, sizeof line);
    const Fields fields(line);
    out << (meeting.state.load() == static_cast<uint32_t>(RingMeetingState::kIn) ? "exchange "
                                                                                 : "failed: ")
        << fields;
    if (fields.is("exchange")) out << " in group " << fields.at[4] << ", ranks " << fields.at[5];
    out << ", number " << static_cast<int64_t>(meeting.begun.load()) << ", for ";
    seconds_since(out, meeting.since.load()) << "\n";
  }
}

void write_stack(const ThreadStack& stack, void* context) {
  PlainText& out = *static_cast<PlainText*>(context);
  out << "thread " << static_cast<int64_t>(stack.thread) << " '" << stack.name << "'";
  out << (stack.answered ? "\n" : ": did not answer\n");
  for (int i = 0; i < stack.frames; ++i) {
    const void* address = stack.addresses[static_cast<size_t>(i)];
    Dl_info info{};
    out << "  #" << static_cast<int64_t>(i) << " " << address;
    if (::dladdr(address, &info) != 0 && info.dli_fname) {
      const auto offset =
          reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(info.dli_fbase);
      out << " " << (info.dli_fbase == program_base ? program : info.dli_fname) << "+"
          << reinterpret_cast<const void*>(offset);
      if (info.dli_sname) out << " " << info.dli_sname;
    } else {
      out << " (generated code)";
    }
    out << "\n";
  }
}

// Safe in a handler of a signal. `fault`: what has an address.
bool write_report(const FlightRecorder& from, const char* why, size_t size, const siginfo_t* fault,
                  const void* signal_context) {
  const int fd =
      ::open(from.report_file(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return false;
  if (::lseek(fd, 0, SEEK_END) > kMostBytes) (void)!::ftruncate(fd, 0);
  {
    const RingHeader& header = from.ring().header();
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    PlainText out(fd);
    out << "== report of rank " << header.rank << " of " << header.world_size << ", process "
        << header.process << " on " << header.host << ", at " << static_cast<int64_t>(now.tv_sec)
        << " s since 1970\nreason: ";
    out.add(why, size);
    if (fault) out << " at address " << fault->si_addr;
    out << "\n";
    write_place(out, from);
    out.flush();  // what may go wrong comes behind it
    if (has_sanitizer())
      out << "no stacks: this program is built with a sanitizer\n";
    else if (!take_thread_stacks(write_stack, &out, signal_context))
      out << "no stacks: another report of them is being written\n";
    out << "\n";
  }
  ::close(fd);
  return true;
}

// "Segmentation fault (SIGSEGV)"
void name_signal(int signal, char* text, size_t size) {
  const char* description = ::sigdescr_np(signal);
  const char* name = ::sigabbrev_np(signal);
  size_t used = 0;
  for (const char* part : {description ? description : "signal", " (SIG", name ? name : "?", ")"})
    for (; *part && used + 1 < size; ++part) text[used++] = *part;
  text[used] = 0;
}

void on_fatal(int signal, siginfo_t* info, void* context) {
  static std::atomic<pid_t> first{0};
  pid_t nobody = 0;
  const bool again = !first.compare_exchange_strong(nobody, ::gettid());
  // Of two threads that crash at once the first writes, and ends the process.
  for (int i = 0; again && nobody != ::gettid() && i < 3000; ++i) {
    const timespec nap{0, 1'000'000};
    ::nanosleep(&nap, nullptr);
  }
  FlightRecorder* from = recorder.load();
  if (!again && from) {
    const siginfo_t* fault = info->si_code > 0 && signal != SIGABRT ? info : nullptr;
    char name[64];
    name_signal(signal, name, sizeof name);
    from->end(RingEnd::kSignal, name, signal);
    const bool written = write_report(*from, name, std::strlen(name), fault, context);
    PlainText line(STDERR_FILENO);
    line << "tessera: rank " << from->ring().header().rank << ": " << name;
    if (fault) line << " at address " << fault->si_addr;
    line << " ";
    if (!write_instruction(line, *from)) line << "in no op";
    if (written) line << "; report: " << from->report_file();
    line << "\n";
  }
  ::signal(signal, SIG_DFL);
  // A fault comes again when the instruction does; what was sent has to be sent again.
  if (info->si_code <= 0) ::raise(signal);
}

void handle_fatal_signals(bool yes) {
  if (has_sanitizer()) return;
  for (int signal : kFatal) {
    struct sigaction action {};
    if (yes) {
      action.sa_sigaction = on_fatal;
      action.sa_flags = SA_SIGINFO | SA_ONSTACK;
      ::sigfillset(&action.sa_mask);
    } else {
      action.sa_handler = SIG_DFL;
    }
    ::sigaction(signal, &action, nullptr);
  }
}

void answer_request() {
  const std::filesystem::path path = write_process_report("SIGUSR2");
  FlightRecorder* from = recorder.load();
  if (!from) return;
  PlainText line(STDERR_FILENO);
  line << "tessera: rank " << from->ring().header().rank << ": "
       << (path.empty() ? "the report cannot be written: " : "report written: ")
       << from->report_file() << "\n";
}

}  // namespace

void report_to(FlightRecorder* to) {
  if (!to) {
    on_report_request(nullptr);
    handle_fatal_signals(false);
  }
  {
    std::lock_guard lock(writing);
    Dl_info own{};
    if (::dladdr(reinterpret_cast<const void*>(&write_stack), &own) != 0)
      program_base = own.dli_fbase;
    std::error_code unreadable;
    std::filesystem::path file = program_file();
    if (file == "/proc/self/exe") file = std::filesystem::read_symlink(file, unreadable);
    std::snprintf(program, sizeof program, "%s", file.c_str());
    recorder.store(to);
  }
  if (!to) return;
  handle_fatal_signals(true);
  on_report_request(answer_request);
}

std::filesystem::path write_process_report(std::string_view reason) noexcept {
  try {
    std::lock_guard lock(writing);
    FlightRecorder* from = recorder.load();
    if (!from || !write_report(*from, reason.data(), reason.size(), nullptr, nullptr)) return {};
    return from->report_file();
  } catch (...) {
    return {};
  }
}

}  // namespace tessera
