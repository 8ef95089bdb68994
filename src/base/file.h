#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

// Whole file as bytes. UserError "cannot read 'PATH': REASON" when it cannot be read.
std::string read_file(const std::filesystem::path& path);

// Bytes to read parts of, by many threads at once: a file of this machine, or one that is fetched
// part by part.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::string name() const = 0;  // path or URL, for messages
  virtual uint64_t size() const = 0;     // does not change
  // Fills `out` with the bytes from `offset` on. UserError when they cannot be read, or are not
  // there (any more).
  virtual void read(uint64_t offset, std::span<std::byte> out) const = 0;
};

class ReadFile : public ByteSource {
 public:
  explicit ReadFile(std::filesystem::path path);  // UserError when it cannot be opened
  ~ReadFile() override;
  ReadFile(const ReadFile&) = delete;
  ReadFile& operator=(const ReadFile&) = delete;

  std::string name() const override { return path_.string(); }
  uint64_t size() const override { return size_; }  // when it was opened
  void read(uint64_t offset, std::span<std::byte> out) const override;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

// What a reader of a mapped file tells the kernel; neither changes what is read.
enum class Advice {
  kSoon,  // these bytes are read next: fetch them ahead
  kDone,  // they are not read again soon: they need not count as memory of this process
};

// A file mapped read-only. Empty files map to an empty view.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);  // UserError when it cannot be mapped
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  void advise(size_t offset, size_t bytes, Advice advice) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Writes all of `text`, also to a descriptor that does not block. Returns how many bytes were
// written; where not all, errno says why.
size_t write_fully(int fd, std::string_view text);

// How written bytes get to the disk: through the system's page cache, or past it where the file
// system can (O_DIRECT). That is twice as fast for files of gigabytes, and evicts nothing.
enum class Caching { kPages, kNone };

// Writes a file aside (`PATH.tmp-MAKER`), and moves it into place on commit() after flushing it to
// disk; of a link, into that of the file it leads to. Without commit() nothing is left behind. What
// is no file (a device, a pipe) is written as it comes. Every failure is a UserError with path and
// cause.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path, Caching caching = Caching::kPages);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void write(const void* data, size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

 private:
  void write_direct(const std::byte* data, size_t size);
  void end_direct();

  std::filesystem::path path_, temporary_;
  int fd_ = -1;
  // Past the page cache blocks are written whole, from memory that is aligned: what does not make
  // up one yet, of kBlock bytes.
  bool direct_ = false;
  std::unique_ptr<std::byte, void (*)(void*)> block_{nullptr, std::free};
  size_t filled_ = 0;
};

// Makes a directory, which must not be there yet, that vanishes with all that is in it unless it
// was moved away.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(std::filesystem::path path);  // UserError when it cannot be made
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// AtomicFile in one call.
void write_file_atomic(const std::filesystem::path& path, std::string_view content);

// Whether there is something, or a file, behind a path and its links. Unlike the standard's own,
// UserError where that cannot be told, for instance in a directory that must not be entered: nobody
// hears then that there is none. They are for paths that somebody gave, not for searching.
bool is_there(const std::filesystem::path& path);
bool is_file(const std::filesystem::path& path);

// Whether a name given by a file stands for a file of the same directory: no path, not `.` or `..`.
bool is_plain_name(std::string_view name);

// Flushes a directory's entries, so that a rename inside it survives a power cut.
void sync_directory(const std::filesystem::path& directory);

// create_directories with a UserError that names the path and the cause.
void make_directories(const std::filesystem::path& path);

}  // namespace tessera
