/* elsewhere.h - moments of two processes: one has opened the instance, the other has joined and has device 1. The
 * threads make only the accesses that meet there. Part of explore_runtime.c. */
#ifndef ELSEWHERE_H
#define ELSEWHERE_H

typedef struct elsewhere {
    remote *r;      /* the device, as the process that opened has it */
    mailbox *mail;  /* of the device */
    uint64_t *word; /* plain memory */
    frugal_status wanted;
} elsewhere;

static elsewhere there;

static void set_up_elsewhere(uint64_t variant) {
    set_up_joined(variant, 0, 0);
    there.r = remote_of(w.f, JOINED);
    there.mail = there.r->mail;
    there.word = explore_alloc(2 * sizeof *there.word, 64);
}

/* Reads a message as its reader does: word by word, as it was written. */
static int says(const char *text, const char *what) {
    char copy[64];
    memcpy(copy, text, sizeof copy);
    return strstr(copy, what) != NULL;
}

/* >>attaching */

/* The device is attached for the other process, and another thread looks at it. */
static void set_up_attaching(uint64_t variant) {
    set_up_elsewhere(variant);
    host_device *device = &w.f->devices[JOINED];
    device->attached = device->linked = 0;
    device->remote = NULL, device->state = NULL, device->ops = (frugal_device_ops){.close = remote_close};
}

static void attach_or_look(int number) {
    host_device *device = &w.f->devices[JOINED];
    if (number == 0) {
        expect_ok(attach_device(w.f, JOINED, &remote_operations, there.r, &(remote_process){1, w.joined->gates}));
        return;
    }
    for (int i = 0; i < 2; i++) {
        const remote *r = remote_of(w.f, JOINED);
        if (r) EXPLORE_EXPECT(r == there.r);
        int attached = is_attached(w.f, JOINED);
        if (attached) EXPLORE_EXPECT(device->state && device->ops.verify);
        EXPLORE_EXPECT(check_own(w.f, JOINED, "a call") == FRUGAL_ERR_DEVICE); /* whatever its message says */
        if (attached) EXPLORE_EXPECT(strstr(last_message, "that of another process"));
    }
}

/* The process that opened calls the device as soon as it is linked; the attendant of the other process answers. */
static void set_up_called(uint64_t variant) {
    set_up_elsewhere(variant);
    host_device *own = &w.joined->devices[JOINED];
    own->linked = 0, own->mail = NULL;
    w.joined->shared.joined->is_over = 1; /* so that it asks no process */
}

static void claim_answer_or_call(int number) {
    const message call = {.kind = MESSAGE_CALL, .d = JOINED, .call = CALL_VERIFY, .number = 1};
    frugal_status status = FRUGAL_OK;
    if (number == 0) {
        w.joined->devices[JOINED].mail = there.mail;
        expect_ok(claim_device(w.joined, JOINED));
    } else if (number == 1) {
        for (answer_call(w.joined, &call); frugal_load_relaxed(&there.mail->replies) != 1; answer_call(w.joined, &call))
            explore_wait();
    } else {
        EXPLORE_EXPECT(await_answer(there.r, 1, 0, &status));
        EXPLORE_EXPECT(there.mail->reply == FRUGAL_OK && !says(there.mail->reply_text, "FRUGAL"));
    }
}

/* >>posts */

static void set_up_posted(uint64_t variant) {
    set_up_elsewhere(variant - variant % 5); /* the data does not end early */
    announce(JOINED, 0);
}

/* A batch that was posted is taken: a thread that looks finds it in the mail, or announced. */
static void take_or_look(int number) {
    if (number == 0)
        serve_posts(w.f);
    else
        EXPLORE_EXPECT(!is_idle(w.f));
}

/* A batch that was posted is cancelled, whether it was taken or not, and posted anew. */
static void cancel_or_serve(int number) {
    if (number == 0) {
        expect_ok(frugal_cancel(w.f, 0));
        announce(JOINED, 0);
        return;
    }
    for (int i = 0; i < 3; i++) serve_posts(w.f);
}

static void expect_announced(void) {
    serve_posts(w.f);
    EXPLORE_EXPECT(frugal_p2f_announced(w.f->p2f, JOINED) == 1);
}

/* A post is refused, and the device's next call says why. */
static void refuse_or_call(int number) {
    if (number == 0) {
        refuse_post(there.r, frugal_fail(FRUGAL_ERR_ORDER, "it is wrong"));
        return;
    }
    frugal_status status = check_posts(w.joined, JOINED, "a call");
    EXPLORE_EXPECT(status == FRUGAL_OK || status == FRUGAL_ERR_ORDER || status == FRUGAL_ERR_LOST);
    if (status == FRUGAL_ERR_ORDER) EXPLORE_EXPECT(says(there.mail->failed_text, "wrong"));
    if (status == FRUGAL_ERR_LOST) EXPLORE_EXPECT(says(w.joined->loss.message, "wrong"));
}

/* A gate is opened for the other process, and a stream there waits for it. */
static void open_pass_or_read(int number) {
    if (number == 0) {
        *there.word = 3; /* a row is written */
        publish_gates(w.f, 1);
        frugal_store_release(&there.mail->opened, 1);
        event_notify(&there.mail->bell);
    } else if (number == 1) {
        expect_ok(pass_posted_gate(w.joined, JOINED, 0, 1));
    } else if (frugal_load_acquire(w.joined->gates) == 1) {
        EXPLORE_EXPECT(*there.word == 3);
    }
}

/* >>ends */

/* Training ends while the device writes rows. The thread that has ended it reads the rows when the device writes no
 * more; from then on the device does not begin to write, and knows why. */
static void set_up_ending(uint64_t variant) {
    set_up_elsewhere(variant / 2);
    there.wanted = variant % 2 ? FRUGAL_STOPPED : FRUGAL_ERR_LOST;
}

static void expect_reason(frugal_status status) {
    EXPLORE_EXPECT(status == there.wanted);
    if (status == FRUGAL_ERR_LOST) EXPLORE_EXPECT(says(w.joined->loss.message, "broken"));
}

static void end_write_or_learn(int number) {
    if (number == 0) {
        if (there.wanted == FRUGAL_STOPPED)
            frugal_stop(w.f);
        else
            lose(0);
        if (!is_posting(w.f, JOINED)) EXPLORE_EXPECT(there.word[0] == there.word[1]);
    } else if (number == 2) {
        learn_end(w.joined);
    } else {
        for (int i = 1; i <= 2; i++) {
            frugal_status status = begin_writing(w.joined, JOINED, "update");
            if (status == FRUGAL_OK) {
                there.word[0] = (uint64_t)i, there.word[1] = (uint64_t)i;
                end_writing(w.joined, JOINED);
                continue;
            }
            expect_reason(status);
        }
    }
}

/* Of two threads of the other process, one learns from the other that training has ended. */
static void set_up_learning(uint64_t variant) {
    set_up_ending(2 * variant); /* a loss */
}

static void end_learn_or_call(int number) {
    if (number == 0) {
        lose(0);
    } else if (number == 1) {
        learn_end(w.joined);
    } else {
        frugal_status status = check_posts(w.joined, JOINED, "a call");
        if (status != FRUGAL_OK) expect_reason(status);
    }
}

/* One thread of the other process stops training there, and another one learns why. */
static void stop_or_call(int number) {
    if (number == 0) {
        *there.word = 3;
        frugal_stop(w.joined);
    } else if (check_posts(w.joined, JOINED, "a call") == FRUGAL_STOPPED) {
        EXPLORE_EXPECT(*there.word == 3);
    }
}

/* A device of another process is lost there. */
static void break_or_serve(int number) {
    if (number == 0) {
        post_loss(w.joined, JOINED, "it is broken");
        return;
    }
    serve_posts(w.f);
    if (frugal_load_acquire(&w.f->loss.device)) EXPLORE_EXPECT(says(w.f->loss.message, "broken"));
}

/* The process is killed while its device writes rows and is called. What it has done happens before its end is noticed,
 * because the system orders that. */
static void set_up_killed(uint64_t variant) {
    set_up_elsewhere(variant);
    there.mail->state = MAIL_WRITER;
    there.r->calls = 1; /* which is not answered */
}

static void kill_call_or_read(int number) {
    if (number == 0) {
        there.word[0] = there.word[1] = 3;
        frugal_store_relaxed(&there.mail->kept_now, 1);
        dismiss(w.f->shared.door, there.r->member, 0);
    } else if (number == 1) {
        EXPLORE_EXPECT(remote_write_back(there.r, NULL, 0) == FRUGAL_ERR_BUSY); /* what it kept is gone */
    } else if (!is_posting(w.f, JOINED)) {
        EXPLORE_EXPECT(there.word[0] == 3 && there.word[1] == 3);
    }
}

#endif /* ELSEWHERE_H */
