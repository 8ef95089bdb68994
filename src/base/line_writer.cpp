#include "base/line_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/file.h"
#include "base/text.h"

namespace tessera {

void LineWriter::write(std::string_view lines) {
  std::string all;
  if (lost_ > 0) all = cat(torn_ ? "\n" : "", name_, loss(), "\n");
  const size_t own = all.size();
  all += lines;
  const size_t written = write_fully(fd_, all);
  if (written >= own) lost_ = 0;
  if (written == all.size()) return;
  cause_ = errno;
  lost_ += std::ranges::count(lines.substr(std::max(written, own) - own), '\n');
  if (written > 0) torn_ = all[written - 1] != '\n';
}

std::string LineWriter::loss() const {
  if (lost_ == 0) return "";
  return cat(lost_, lost_ == 1 ? " line is" : " lines are",
             " missing here: ", std::strerror(cause_));
}

}  // namespace tessera
