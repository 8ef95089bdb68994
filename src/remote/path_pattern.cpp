#include "remote/path_pattern.h"

#include <algorithm>
#include <vector>

namespace tessera {
namespace {

// Whether a class like [0-9] or [!a] takes `c`, and its length; 0 where it has no end.
size_t class_length(std::string_view pattern, char c, bool& takes) {
  size_t at = 1;
  const bool inverted = pattern.substr(1).starts_with('!') || pattern.substr(1).starts_with('^');
  if (inverted) ++at;
  bool found = false;
  for (const size_t begin = at; at < pattern.size(); ++at) {
    if (pattern[at] == ']' && at > begin) {
      takes = found != inverted && c != '/';
      return at + 1;
    }
    char last = pattern[at];
    const char first = last;
    if (at + 2 < pattern.size() && pattern[at + 1] == '-' && pattern[at + 2] != ']')
      last = pattern[at += 2];
    found = found || (first <= c && c <= last);
  }
  return 0;
}

}  // namespace

bool matches_path_pattern(std::string_view path, std::string_view pattern) {
  const size_t plain = std::min(pattern.find_first_of("*?["), pattern.size());
  if (!path.starts_with(pattern.substr(0, plain))) return false;
  path.remove_prefix(plain);
  pattern.remove_prefix(plain);
  if (pattern.empty()) return path.empty();
  // Which beginnings of the path the pattern so far takes.
  std::vector<bool> ends(path.size() + 1);
  ends[0] = true;
  while (!pattern.empty()) {
    std::vector<bool> next(ends.size());
    size_t taken = 1;
    if (pattern.starts_with('*')) {
      const bool crosses = pattern.starts_with("**");
      const size_t stars = std::min(pattern.find_first_not_of('*'), pattern.size());
      const bool directories = crosses && pattern.substr(stars).starts_with('/');
      taken = directories ? stars + 1 : stars;
      bool any = false;
      for (size_t i = 0; i < ends.size(); ++i) {
        any = ends[i] || (any && (crosses || path[i - 1] != '/'));
        // Any number of directories, each with its slash.
        next[i] = directories ? ends[i] || (any && i > 0 && path[i - 1] == '/') : any;
      }
    } else {
      bool takes_class = false;
      const size_t length = pattern[0] == '[' ? class_length(pattern, 'a', takes_class) : 0;
      if (length > 0) taken = length;
      for (size_t i = 0; i < path.size(); ++i) {
        if (!ends[i]) continue;
        bool takes = pattern[0] == '?' ? path[i] != '/' : path[i] == pattern[0];
        if (length > 0) class_length(pattern, path[i], takes);
        next[i + 1] = takes;
      }
    }
    pattern.remove_prefix(taken);
    ends = std::move(next);
  }
  return ends[path.size()];
}

}  // namespace tessera
