#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace tessera {

// A file to which whole records are appended. Where one cannot be written (a full disk) the file
// keeps those that it has, and one warning says that no more will come.
class RecordFile {
 public:
  // `what` it holds, for messages: "metrics". UserError if it cannot be opened.
  RecordFile(const std::filesystem::path& path, std::string what);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;
  // In one write: readers and a crash never see a part of it.
  void append(std::string_view record);

 private:
  int fd_ = -1;  // < 0: nothing is written any more
  std::string path_, what_;
};

}  // namespace tessera
