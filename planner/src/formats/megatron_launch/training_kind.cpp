#include "formats/megatron_launch/training_kind.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>

#include "core/error.hpp"
#include "core/line.hpp"

namespace meshplan::planner::megatron {
namespace {

struct Purpose {
  std::string_view part;  // of the program's name
  std::string_view what;
};
// The first that a name holds. What trains says so, or says nothing.
constexpr std::array kPurposes = {
    Purpose{"pretrain", ""},
    Purpose{"finetune", ""},
    Purpose{"inference", "generates text or serves"},
    Purpose{"generat", "generates text or serves"},
    Purpose{"server", "generates text or serves"},
    Purpose{"benchmark", "measures a server"},
    Purpose{"eval", "evaluates"},
    Purpose{"mmlu", "evaluates"},
    Purpose{"msdp", "evaluates"},
    Purpose{"validate", "evaluates"},
    Purpose{"convert", "converts checkpoints"},
    Purpose{"checkpoint", "converts checkpoints"},
    Purpose{"export", "exports a checkpoint"},
    Purpose{"hf2", "converts checkpoints"},
    Purpose{"2hf", "converts checkpoints"},
    Purpose{"quantize", "quantizes a trained model"},
    Purpose{"prune", "prunes a trained model"},
    Purpose{"feature_extract", "runs a trained model"},
    Purpose{"preprocess", "prepares data"},
    Purpose{"huggingface", "trains with the Hugging Face trainer, whose flags are others"},
};

struct OtherModel {
  std::string_view sign;
  std::string_view what;
};
constexpr std::array kPrograms = {
    OtherModel{"bert", "an encoder (BERT)"},
    OtherModel{"t5", "an encoder and a decoder (T5)"},
    OtherModel{"ict", "two encoders (ICT)"},
    OtherModel{"vision", "a model of images"},
    OtherModel{"vlm", "a model of images and text"},
    OtherModel{"llava", "a model of images and text"},
    OtherModel{"multimodal", "a model of images and text"},
    OtherModel{"mimo", "a model of several modalities"},
};
constexpr std::array kFlags = {
    OtherModel{"--hybrid-layer-pattern", "a hybrid with layers of Mamba"},
    OtherModel{"--hybrid-override-pattern", "a hybrid with layers of Mamba"},
    OtherModel{"--is-hybrid-model", "a hybrid with layers of Mamba"},
    OtherModel{"--encoder-num-layers", "an encoder and a decoder"},
    OtherModel{"--decoder-seq-length", "an encoder and a decoder"},
    OtherModel{"--vision-model-type", "a model of images and text"},
    OtherModel{"--vision-pretraining", "a model of images"},
    OtherModel{"--img-h", "a model of images"},
    OtherModel{"--patch-dim", "a model of images"},
    OtherModel{"--bert-binary-head", "an encoder (BERT)"},
    OtherModel{"--retro-add-retriever", "a decoder that retrieves (Retro)"},
};

/// The words of a name between '_', '-', '.' and '/'.
bool has_word(std::string_view name, std::string_view word) {
  constexpr std::string_view kEnds = "_-./";
  for (auto at = name.find(word); at != std::string_view::npos; at = name.find(word, at + 1)) {
    const auto end = at + word.size();
    const bool begins = at == 0 || kEnds.find(name[at - 1]) != std::string_view::npos;
    const bool ends = end == name.size() || kEnds.find(name[end]) != std::string_view::npos;
    if (begins && ends) return true;
  }
  return false;
}

}  // namespace

std::string other_purpose(std::string_view program) {
  for (const Purpose& purpose : kPurposes)
    if (program.find(purpose.part) != std::string_view::npos) {
      if (purpose.what.empty() && program.find("huggingface") != std::string_view::npos) continue;
      return std::string(purpose.what);
    }
  return {};
}

void require_decoder(const Reading& reading, const std::string& program, const std::string& place) {
  constexpr std::string_view kWhatIsRead = "plans of Megatron-LM are read of decoders of text";
  for (const OtherModel& other : kPrograms)
    if (has_word(program, other.sign))
      throw ConfigError(
          fmt::format("{}: {} trains {}; {}", place, short_line(program), other.what, kWhatIsRead));
  for (const OtherModel& other : kFlags)
    if (const Argument* given = reading.find(other.sign))
      Reading::fail(*given, fmt::format("is of {}; {}", other.what, kWhatIsRead));
  for (const char* flag : {"--tokenizer-type", "--patch-tokenizer-type"}) {
    const Argument* given = reading.find(flag);
    if (given == nullptr || given->values.size() != 1) continue;
    const std::string& type = given->values.front().text;
    if (type.find("VL") != std::string::npos || type.find("Multimodal") != std::string::npos)
      Reading::fail(*given, fmt::format("is of a model of images and text; {}", kWhatIsRead));
  }
}

}  // namespace meshplan::planner::megatron
