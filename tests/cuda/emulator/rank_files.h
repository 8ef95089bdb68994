#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>

// Where ranks of different processes meet: files in a directory whose name is part of the id of
// their communicator. Who reads one finds it whole. A process that dies leaves no lock behind, it
// only gives nothing any more.
namespace tessera::emulated_gpu {

class RankFiles {
 public:
  explicit RankFiles(std::string directory);  // made where it is missing
  const std::string& directory() const { return directory_; }

  // What participant `number` gives under a name. False: it has given something already.
  bool put(const std::string& name, int number, std::span<const std::byte> content) const;
  bool put(const std::string& name, int number, const std::string& text) const;
  bool has(const std::string& name, int number) const;
  std::optional<std::string> get(const std::string& name, int number) const;
  // One of `count` participants has taken all of them; they go with the last.
  void taken(const std::string& name, int count) const;

 private:
  std::string path(const std::string& name, int number) const;
  std::string directory_;
};

// The name of a directory that nobody has: it goes when this process ends, or with reset().
std::string new_meeting_place();
void remove_meeting_places();

}  // namespace tessera::emulated_gpu
