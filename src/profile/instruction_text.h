#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/printer.h"
#include "profile/speed_of_light.h"
#include "runtime/executable.h"

namespace tessera {

struct ProfiledProgram {
  std::string name;
  Executable* executable = nullptr;
};

// What a trace says of an instruction, the same every time it runs.
struct InstructionText {
  std::string event;              // name, category and arguments in JSON, these still open
  std::string place;              // of these the op, phase, scope, layer and program
  std::string exchange;           // of a wait: the same of the exchange
  std::string ranks;              // likewise: who takes part
  std::vector<std::string> path;  // phase and scope
  int32_t node = -1;
  bool launches = false;
  double flops = 0, bytes = 0;
  double light_seconds = 0;    // at the speed of light; not finite where that is not known
  Lane lane = Lane::kCompute;  // of the exchange
};

// Those of a program's plan, each made when it is asked for; of a program without one, which tells
// of a whole run as of one instruction, a single text. Program and ceilings outlive it.
class InstructionTexts {
 public:
  InstructionTexts(const ProfiledProgram& program, const SpeedOfLight& light, int rank);

  const InstructionText& operator[](size_t instruction);
  const Graph& graph() const { return graph_; }
  const Plan* plan() const { return plan_; }  // or nullptr
  ProgramMemory memory() const { return program_.executable->memory(); }
  const std::string& name() const { return program_.name; }
  // Takes note of a launch of compute, if the instruction is one.
  void reached(size_t instruction, double seconds, SpeedOfLight& light) const;

 private:
  InstructionText make(const Instruction& instruction) const;
  InstructionText whole() const;
  std::string place(const Node& node, std::string_view op) const;
  void describe_exchange(const Node& node, const std::string& place, InstructionText& text) const;

  const ProfiledProgram& program_;
  const Graph& graph_;
  const Plan* plan_;
  const SpeedOfLight& light_;
  int rank_;
  std::vector<std::optional<InstructionText>> texts_;
};

// "0-7", "0-56/8" (every eighth), else all of them: "0,1,5".
std::string ranks_text(std::span<const int> ranks);

}  // namespace tessera
