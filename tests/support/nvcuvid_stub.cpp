// libnvcuvid as its header describes it, without a GPU: it says what it was asked for, and decodes nothing.
// A packet's first byte is what happens: p a picture, e one that ends in an error, h one that is never done, w one of
// another size, t one of ten bits, 0 one of 320x192 whatever is in it, anything else no picture. One is done when it has
// been asked about three times. LOOKOUT_TEST_OPENINGS is a file in which each decoder that is made notes how many
// are being made at this moment, by all processes. Byte by byte it is 7 times its place in the order of decoding, and its row, until it
// is given back.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>

#include <ffnvcodec/dynlink_cuda.h>
#include <ffnvcodec/dynlink_nvcuvid.h>

extern "C" {
int refusal = 0;           // what making a decoder comes to
int refusal_of_change = 0; // and changing one
}

namespace {
const CUresult REFUSED = static_cast<CUresult>(1);
constexpr unsigned PITCH = 2048, GONE = 0xEE;
std::ostringstream said;
std::deque<unsigned char *> gone; // so that a copy that comes too late has that
std::mutex lock;                 // of both
std::atomic<int> alive = 0, mapped = 0;

struct Parser {
    CUVIDPARSERPARAMS wanted;
    char form = 0;
    int next = 0, surfaces = 0, count = 0;
    std::deque<CUVIDPARSERDISPINFO> waiting;

    void show(size_t held_back) {
        for (; waiting.size() > held_back; waiting.pop_front())
            wanted.pfnDisplayPicture(wanted.pUserData, &waiting.front());
    }
};

// Takes a moment, and notes how many do so at this moment.
void note_opening(const std::string &file) {
    std::string mark;
    int own = -1, place = 0;
    while (own < 0 && ++place < 9) {
        mark = file + "." + std::to_string(place);
        own = open(mark.c_str(), O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const std::string line = std::to_string(place) + "\n";
    const int notes = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (own < 0 || write(notes, line.data(), line.size()) < 0)
        abort();
    close(notes), close(own);
    unlink(mark.c_str());
}

thread_local bool in_sequence = false; // within the callback

struct Decoder {
    unsigned rows;
    unsigned long width_max, height_max, surfaces;
    std::atomic<int> mapped = 0;
    int asked[64] = {}, count[64] = {};
    char kind[64] = {};
};
} // namespace

extern "C" {
const char *told() {
    static std::string text;
    text = said.str() + "alive " + std::to_string(alive) + " mapped " + std::to_string(mapped);
    said.str("");
    return text.c_str();
}

int nvcuvid_alive() { return alive + mapped; }

CUresult cuvidGetDecoderCaps(CUVIDDECODECAPS *caps) {
    caps->bIsSupported = caps->eCodecType != cudaVideoCodec_AV1 && caps->eChromaFormat == cudaVideoChromaFormat_420 &&
                         caps->nBitDepthMinus8 == 0;
    caps->nNumNVDECs = 7;
    caps->nMinWidth = 48, caps->nMinHeight = 16, caps->nMaxWidth = 4096, caps->nMaxHeight = 2304;
    return CUDA_SUCCESS;
}

CUresult cuvidCreateVideoParser(CUvideoparser *parser, CUVIDPARSERPARAMS *wanted) {
    std::lock_guard guard(lock);
    said << "parser codec " << wanted->CodecType << " delay " << wanted->ulMaxDisplayDelay << "\n";
    *parser = reinterpret_cast<CUvideoparser>(new Parser{*wanted});
    ++alive;
    return CUDA_SUCCESS;
}

CUresult cuvidParseVideoData(CUvideoparser handle, CUVIDSOURCEDATAPACKET *packet) {
    auto &parser = *reinterpret_cast<Parser *>(handle);
    if (packet->flags & CUVID_PKT_ENDOFSTREAM) {
        parser.show(0);
        parser.wanted.pfnDisplayPicture(parser.wanted.pUserData, nullptr);
        parser.form = -1; // the next begins anew, and its form is told once more
        return CUDA_SUCCESS;
    }
    char kind = static_cast<char>(packet->payload[0]), form = kind == 'e' || kind == 'c' || kind == 'h' ? 'p' : kind;
    if (form && !strchr("pwt", form))
        return CUDA_SUCCESS;
    if (parser.form != form || !parser.surfaces) {
        CUVIDEOFORMAT format = {};
        format.codec = parser.wanted.CodecType;
        format.chroma_format = cudaVideoChromaFormat_420;
        format.min_num_decode_surfaces = 5;
        format.bit_depth_luma_minus8 = form == 't' ? 2 : 0;
        format.coded_width = form == 'w' ? 640 : 1920, format.coded_height = 1088;
        format.display_area.left = 8, format.display_area.top = 4;
        format.display_area.right = form == 'w' ? 632 : 1911, format.display_area.bottom = 1081; // odd: 1903x1077
        if (!form) {
            format.coded_width = 320, format.coded_height = 192;
            format.display_area.left = format.display_area.top = 0;
            format.display_area.right = 320, format.display_area.bottom = 192;
        }
        in_sequence = true;
        parser.surfaces = parser.wanted.pfnSequenceCallback(parser.wanted.pUserData, &format);
        in_sequence = false;
        parser.next %= parser.surfaces ? parser.surfaces : 1;
        if (!parser.surfaces) { // a parser that goes on nevertheless
            CUVIDPICPARAMS picture = {};
            picture.pBitstreamData = packet->payload;
            return parser.wanted.pfnDecodePicture(parser.wanted.pUserData, &picture) ? CUDA_SUCCESS : REFUSED;
        }
        parser.form = form;
    }
    CUVIDPICPARAMS picture = {};
    picture.CurrPicIdx = parser.next;
    picture.nBitstreamDataLen = packet->payload_size;
    picture.pBitstreamData = packet->payload;
    picture.nNumSlices = parser.count++; // the parser's to fill in, and nobody else's
    if (!parser.wanted.pfnDecodePicture(parser.wanted.pUserData, &picture))
        return REFUSED;
    CUVIDPARSERDISPINFO shown = {};
    shown.picture_index = parser.next;
    shown.progressive_frame = 1;
    shown.timestamp = packet->flags & CUVID_PKT_TIMESTAMP ? packet->timestamp : -1;
    parser.waiting.push_back(shown);
    parser.next = (parser.next + 1) % parser.surfaces;
    parser.show(parser.wanted.ulMaxDisplayDelay);
    return CUDA_SUCCESS;
}

CUresult cuvidDestroyVideoParser(CUvideoparser parser) {
    delete reinterpret_cast<Parser *>(parser);
    --alive;
    return CUDA_SUCCESS;
}

CUresult cuvidCreateDecoder(CUvideodecoder *decoder, CUVIDDECODECREATEINFO *wanted) {
    if (refusal)
        return static_cast<CUresult>(refusal);
    if (const char *file = getenv("LOOKOUT_TEST_OPENINGS"))
        note_opening(file);
    auto &area = wanted->display_area;
    std::lock_guard guard(lock);
    said << "decoder codec " << wanted->CodecType << " of " << wanted->ulWidth << "x" << wanted->ulHeight << " up to "
         << wanted->ulMaxWidth << "x" << wanted->ulMaxHeight << " shown " << area.left << "," << area.top << ","
         << area.right << "," << area.bottom << " as " << wanted->ulTargetWidth << "x" << wanted->ulTargetHeight
         << " surfaces " << wanted->ulNumDecodeSurfaces << "+" << wanted->ulNumOutputSurfaces << " chroma "
         << wanted->ChromaFormat << " depth " << wanted->bitDepthMinus8 << " output " << wanted->OutputFormat
         << " deinterlace " << wanted->DeinterlaceMode << " flags " << wanted->ulCreationFlags << "\n";
    *decoder = reinterpret_cast<CUvideodecoder>(new Decoder{static_cast<unsigned>(wanted->ulTargetHeight * 3 / 2),
                                                            wanted->ulMaxWidth, wanted->ulMaxHeight,
                                                            wanted->ulNumDecodeSurfaces});
    ++alive;
    return CUDA_SUCCESS;
}

CUresult cuvidReconfigureDecoder(CUvideodecoder handle, CUVIDRECONFIGUREDECODERINFO *wanted) {
    auto &decoder = *reinterpret_cast<Decoder *>(handle);
    std::lock_guard guard(lock);
    said << "change to " << wanted->ulWidth << "x" << wanted->ulHeight << " shown " << wanted->display_area.left << ","
         << wanted->display_area.top << "," << wanted->display_area.right << "," << wanted->display_area.bottom << " as "
         << wanted->ulTargetWidth << "x" << wanted->ulTargetHeight << " surfaces " << wanted->ulNumDecodeSurfaces << "\n";
    if (refusal_of_change)
        return static_cast<CUresult>(refusal_of_change);
    if (!in_sequence || decoder.mapped || wanted->ulWidth > decoder.width_max || wanted->ulHeight > decoder.height_max ||
        wanted->ulNumDecodeSurfaces > decoder.surfaces)
        return REFUSED;
    decoder.rows = static_cast<unsigned>(wanted->ulTargetHeight * 3 / 2);
    return CUDA_SUCCESS;
}

CUresult cuvidDestroyDecoder(CUvideodecoder handle) {
    auto decoder = reinterpret_cast<Decoder *>(handle);
    const bool is_free = decoder->mapped == 0;
    delete decoder;
    --alive;
    return is_free ? CUDA_SUCCESS : REFUSED;
}

CUresult cuvidDecodePicture(CUvideodecoder handle, CUVIDPICPARAMS *picture) {
    auto &decoder = *reinterpret_cast<Decoder *>(handle);
    decoder.asked[picture->CurrPicIdx] = 0;
    decoder.count[picture->CurrPicIdx] = picture->nNumSlices;
    decoder.kind[picture->CurrPicIdx] = static_cast<char>(picture->pBitstreamData[0]);
    std::lock_guard guard(lock);
    said << "picture " << picture->CurrPicIdx << " of " << picture->nBitstreamDataLen << " bytes\n";
    return CUDA_SUCCESS;
}

CUresult cuvidGetDecodeStatus(CUvideodecoder handle, int index, CUVIDGETDECODESTATUS *status) {
    auto &decoder = *reinterpret_cast<Decoder *>(handle);
    char kind = decoder.kind[index];
    status->decodeStatus = ++decoder.asked[index] < 3 || kind == 'h' ? cuvidDecodeStatus_InProgress
                           : kind == 'e'                            ? cuvidDecodeStatus_Error
                           : kind == 'c'                            ? cuvidDecodeStatus_Error_Concealed
                                                                    : cuvidDecodeStatus_Success;
    return CUDA_SUCCESS;
}

CUresult cuvidMapVideoFrame64(
    CUvideodecoder handle, int index, unsigned long long *pointer, unsigned int *pitch, CUVIDPROCPARAMS *wanted) {
    auto &decoder = *reinterpret_cast<Decoder *>(handle);
    auto rows = decoder.rows;
    auto memory = new unsigned char[sizeof rows + rows * PITCH];
    memcpy(memory, &rows, sizeof rows);
    memory += sizeof rows;
    for (unsigned row = 0; row < rows; ++row)
        memset(memory + row * PITCH, static_cast<unsigned char>(7 * decoder.count[index] + row), PITCH);
    std::lock_guard guard(lock);
    said << "map " << index << " progressive " << wanted->progressive_frame << " stream "
         << reinterpret_cast<long>(wanted->output_stream) << "\n";
    *pointer = reinterpret_cast<unsigned long long>(memory), *pitch = PITCH;
    ++mapped, ++decoder.mapped;
    return CUDA_SUCCESS;
}

CUresult cuvidUnmapVideoFrame64(CUvideodecoder handle, unsigned long long pointer) {
    auto memory = reinterpret_cast<unsigned char *>(pointer);
    unsigned rows;
    memcpy(&rows, memory - sizeof rows, sizeof rows);
    memset(memory, GONE, rows * PITCH);
    --mapped, --reinterpret_cast<Decoder *>(handle)->mapped;
    std::lock_guard guard(lock);
    gone.push_back(memory - sizeof rows);
    if (gone.size() > 32) {
        delete[] gone.front();
        gone.pop_front();
    }
    return CUDA_SUCCESS;
}
}
